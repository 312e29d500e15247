// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"
	"net/http"
	"strconv"
	"strings"
)

// answerCost is what an answer takes until it is written, besides the objects as they are decoded: in multiples of what they
// take in the store, and decoded.
type answerCost struct{ stored, decoded int64 }

var (
	// streamed is JSON and protobuf, of which a list is encoded object by object.
	streamed = answerCost{stored: 1}
	// indented is JSON that is encoded whole, and again with spaces.
	indented = answerCost{stored: 8}
	// tabled is a Table, whose rows have copies of objects and are encoded together.
	tabled = answerCost{stored: 4, decoded: 1}
	// treed is YAML: it is made of JSON, by way of a tree of its values.
	treed = answerCost{stored: 10, decoded: 2}
)

func (c answerCost) of(stored, decoded int64) int64 { return c.stored*stored + c.decoded*decoded }

// newAnswerCost goes by what a request accepts, as an API server does, and by the worst of it.
func newAnswerCost(r *http.Request) answerCost {
	accept := strings.ToLower(r.Header.Get("Accept"))
	switch {
	case strings.Contains(accept, "yaml"):
		return treed
	case strings.Contains(accept, "pretty"), isPretty(r):
		return answerCost{max(indented.stored, tabled.stored), tabled.decoded}
	case strings.Contains(accept, "as="):
		return tabled
	}
	return streamed
}

// isPretty follows upstream's isPrettyPrint: people's tools get JSON with spaces unasked.
func isPretty(r *http.Request) bool {
	if asked := r.URL.Query().Get("pretty"); asked != "" {
		pretty, _ := strconv.ParseBool(asked) // what is no boolean is false
		return pretty
	}
	agent := r.UserAgent()
	return strings.HasPrefix(agent, "curl") || strings.HasPrefix(agent, "Wget") || strings.HasPrefix(agent, "Mozilla/5.0")
}

type answerCostKey struct{}

func withAnswerCost(ctx context.Context, c answerCost) context.Context {
	return context.WithValue(ctx, answerCostKey{}, c)
}

func answerCostOf(ctx context.Context) answerCost {
	if c, ok := ctx.Value(answerCostKey{}).(answerCost); ok {
		return c
	}
	return streamed
}

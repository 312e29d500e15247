// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package requests

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"

	"github.com/berth-dev/berth/bounds"
)

// AnswerCost is what an answer takes until it is written, besides the objects as they are decoded: in multiples of what they
// take in the store, and decoded; and with the spaces that its lines begin with.
type AnswerCost struct {
	stored, decoded int64
	lines           bool
}

var (
	// Streamed is JSON and protobuf, of which a list is encoded object by object.
	Streamed = AnswerCost{stored: 1}
	// indented is JSON that is encoded whole, and again with spaces.
	indented = AnswerCost{stored: 8, lines: true}
	// tabled is a Table, whose rows have copies of objects and are encoded together.
	tabled = AnswerCost{stored: 4, decoded: 1}
	// treed is YAML: it is made of JSON, by way of a tree of its values.
	treed = AnswerCost{stored: 10, decoded: 2, lines: true}
)

// Of is what the answer takes for objects of these sizes, in bytes, as stored and decoded.
func (c AnswerCost) Of(stored, decoded int64) int64 { return c.stored*stored + c.decoded*decoded }

// Indentation is what the spaces take that an object's lines begin with: more than the object by far, if it is deep.
func (c AnswerCost) Indentation(object any) int64 {
	if !c.lines {
		return 0
	}
	return indentedCopies * indentationOf(object)
}

// newAnswerCost goes by what a request accepts, as an API server does, and by the worst of it.
func newAnswerCost(r *http.Request) AnswerCost {
	accept := strings.ToLower(r.Header.Get("Accept"))
	switch {
	case strings.Contains(accept, "yaml"):
		return treed
	case strings.Contains(accept, "pretty"), isPretty(r):
		return AnswerCost{max(indented.stored, tabled.stored), tabled.decoded, true}
	case strings.Contains(accept, "as="):
		return tabled
	}
	return Streamed
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

// answerMemory is what a request's answer costs.
type answerMemory struct {
	AnswerCost
	// held is what the request's reservation holds for the spaces of an object that it writes, and answers with.
	held atomic.Int64
}

// Hold has the request's reservation hold what is needed for the spaces of an object.
func (a *answerMemory) Hold(r *bounds.Reservation, object any) error {
	if n := a.Indentation(object) - a.held.Load(); n > 0 {
		if err := r.Grow(n); err != nil {
			return err
		}
		a.held.Add(n)
	}
	return nil
}

type answerKey struct{}

func withAnswerCost(ctx context.Context, c AnswerCost) context.Context {
	return context.WithValue(ctx, answerKey{}, &answerMemory{AnswerCost: c})
}

// AnswerOf returns what the answer of the request of ctx costs.
func AnswerOf(ctx context.Context) *answerMemory {
	if a, ok := ctx.Value(answerKey{}).(*answerMemory); ok {
		return a
	}
	return &answerMemory{AnswerCost: Streamed}
}

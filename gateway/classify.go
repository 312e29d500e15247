// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/filters"

	"github.com/berth-dev/berth/bounds"
)

// class says what a request takes of a space's share of the process.
type class struct {
	quantity bounds.Quantity
	long     bool
	// list says that the request may read, and encode, all objects of a resource.
	list bool
	// cost of another request, in units of which a processor has unitsPerProcessor.
	cost int
	// lease is how long at most the request counts as one that is executed. After
	// that it waits for something else: a slow client, or a webhook, which must be
	// able to call the same space.
	lease time.Duration
}

const (
	// A write waits for the disk most of the time, and many share one wait. A read
	// needs a processor alone.
	writeCost = 1
	readCost  = 4
	// While a part of a long answer is written, the next ones are encoded.
	partCost = readCost

	listLease  = time.Second
	otherLease = 100 * time.Millisecond
)

// classifier tells requests apart as API servers do, before they reach one.
type classifier struct {
	info *request.RequestInfoFactory
	long request.LongRunningRequestCheck
}

func newClassifier() classifier {
	return classifier{
		info: &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")},
		// Those of the spaces' own API servers.
		long: filters.BasicLongRunningRequestCheck(
			sets.NewString("watch", "proxy"), sets.NewString("attach", "exec", "proxy", "log", "portforward")),
	}
}

// classify reads a request's method, path and parameters. The path must be the
// space's own.
func (c classifier) classify(r *http.Request) class {
	info, err := c.info.NewRequestInfo(r)
	if err != nil { // the API server will say so
		info = &request.RequestInfo{Verb: "list"}
	}
	k := class{quantity: bounds.RequestsWriting, cost: writeCost, lease: otherLease}
	switch info.Verb {
	case "list", "deletecollection":
		k.list, k.lease = true, listLease
	case "watch":
		k.list = beginsWithState(r)
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		k.quantity, k.cost = bounds.RequestsReading, readCost
	}
	if c.long(r, info) {
		k.quantity, k.long, k.cost = bounds.RequestsLongRunning, true, readCost
		k.lease = otherLease // also of a watch that begins with all objects: then it waits for changes
	}
	return k
}

// beginsWithState reports whether a watch is sent all objects first.
func beginsWithState(r *http.Request) bool {
	query := r.URL.Query()
	version := query.Get("resourceVersion")
	return version == "" || version == "0" || query.Get("sendInitialEvents") == "true"
}

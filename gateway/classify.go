// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"net/http"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/server/filters"

	"github.com/berth-dev/berth/bounds"
)

// class is the cost of a request.
type class struct {
	quantity bounds.Quantity
	long     bool
	// list means that the request may read and encode all objects of a resource.
	list bool
	// watch means that what it begins with is read, and each object encoded, after the turn of the request.
	watch bool
	// cost is the cost of other requests, in units. A processor has unitsPerProcessor.
	cost int
	// lease is the maximum time for which the request counts as executing. After that, it waits for something else: a
	// slow client, or a webhook, which must be able to call the same space.
	lease time.Duration
}

const (
	// A write mostly waits for the disk, and many writes share one wait. A read uses a processor alone.
	writeCost = 1
	readCost  = 4
	// While one part of a long response is written, the next ones are encoded.
	partCost = readCost
	// watchByte is what it takes to encode a byte of an object for a watch or a list, as measured with ConfigMaps of 1.5 KB.
	watchByte = 40 * time.Nanosecond

	listLease  = time.Second
	otherLease = 100 * time.Millisecond
)

// classifier classifies requests before they reach an API server, by the same rules as API servers.
type classifier struct {
	info *request.RequestInfoFactory
	long request.LongRunningRequestCheck
}

func newClassifier() classifier {
	return classifier{
		info: &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")},
		// These are the rules of the spaces' API servers.
		long: filters.BasicLongRunningRequestCheck(
			sets.NewString("watch", "proxy"), sets.NewString("attach", "exec", "proxy", "log", "portforward")),
	}
}

var lasting = sync.OnceValue(newClassifier)

// Lasts reports whether a request, whose path is without the prefix of its space, lasts until its client ends it, such as a watch.
func Lasts(r *http.Request) bool { return lasting().classify(r).long }

// classify classifies a request by its method, path, and parameters. The path must be without the prefix of the space.
func (c classifier) classify(r *http.Request) class {
	info, err := c.info.NewRequestInfo(r)
	if err != nil { // the API server will return the error
		info = &request.RequestInfo{Verb: "list"}
	}
	k := class{quantity: bounds.RequestsWriting, cost: writeCost, lease: otherLease}
	switch info.Verb {
	case "list", "deletecollection":
		k.list, k.lease = true, listLease
	case "watch":
		k.watch = true
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
		k.quantity, k.cost = bounds.RequestsReading, readCost
	}
	if c.long(r, info) {
		k.quantity, k.long, k.cost = bounds.RequestsLongRunning, true, readCost
	}
	return k
}

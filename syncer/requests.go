// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import "k8s.io/client-go/util/flowcontrol"

const (
	// requestRate is how many requests a syncer makes to its space in a second, once it has made requestsAtOnce. Without a limit,
	// a tenant's policy that changes the statuses that the syncer writes keeps it writing, as fast as it can and without an end.
	// Controllers of a space have the same rate.
	requestRate = 200
	// requestsAtOnce is as many as for some thousand pods that are created in one burst, and run.
	requestsAtOnce = 20_000
)

// newRequestLimiter is for all clients of one space.
func newRequestLimiter() flowcontrol.RateLimiter {
	return flowcontrol.NewTokenBucketRateLimiter(requestRate, requestsAtOnce)
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package metering

import (
	"math"
	"slices"
	"time"
)

const (
	hour = int64(time.Hour / time.Second)
	day  = 24 * hour

	// MaxSpaces is how many spaces of a tenant have records of their own in an hour, or in a day of older records. The others of this tenant
	// share the record of [Others].
	MaxSpaces = 500
	// Others is in place of the name of a space. No space can have this name.
	Others = "(others)"
)

// key is what is counted apart. hour is its start in seconds of Unix time.
type key struct {
	hour          int64
	tenant, space string
}

// call is a kind of request: what it wants, and how it was answered.
type call struct {
	verb string
	code int
}

// counts are what was counted of a key.
type counts struct {
	calls map[call]int64
	// received and sent are bytes of bodies.
	received, sent int64
	// latency is the time of all timed requests together, in microseconds.
	latency, timed int64
	amounts
}

// amounts are amounts multiplied by the seconds in which they were used.
type amounts struct {
	// sampled are the seconds in which the others are known, without objects. Objects are known in counted seconds.
	sampled, cpu, memory, storage, pods, store float64
	counted, objects                           float64
}

func (a *amounts) add(b amounts) {
	a.sampled += b.sampled
	a.cpu += b.cpu
	a.memory += b.memory
	a.storage += b.storage
	a.pods += b.pods
	a.store += b.store
	a.counted += b.counted
	a.objects += b.objects
}

func (c *counts) count(k call, n int64) {
	if c.calls == nil {
		c.calls = map[call]int64{}
	}
	c.calls[k] += n
}

// knownCode returns the status code under which a response is counted. A space can answer with any code, such as by an extension API
// server. An unknown one counts as the first of its class, as RFC 9110, section 15, has clients treat it. 0 is no valid response.
func knownCode(code int) int {
	if _, known := slices.BinarySearch(knownCodes(), code); known {
		return code
	}
	if code < 100 || code > 599 {
		return 0
	}
	return code / 100 * 100
}

// knownCodes returns the status codes that are counted apart, in order.
func knownCodes() []int {
	return []int{
		0, 100, 101, 200, 201, 202, 204, 206, 300, 301, 302, 304, 307, 400, 401, 403, 404, 405, 406, 409, 410, 413, 415, 422, 429,
		500, 501, 502, 503, 504,
	}
}

// maxAmount limits an amount, which tenants choose, such as the size of a claim. Sums of it are still numbers.
const maxAmount = 1 << 60

// amount returns a valid amount.
func amount(value float64) float64 {
	if math.IsNaN(value) {
		return 0
	}
	return min(max(value, 0), maxAmount)
}

// splitHours calls do for each hour between two times, with the seconds of it that are between them.
func splitHours(from, to time.Time, do func(hourStart int64, seconds float64)) {
	for from.Before(to) {
		start := from.Unix() - mod(from.Unix(), hour)
		end := time.Unix(start+hour, 0)
		if to.Before(end) {
			end = to
		}
		do(start, end.Sub(from).Seconds())
		from = end
	}
}

// mod is the remainder of a division, which is not negative.
func mod(a, b int64) int64 { return (a%b + b) % b }

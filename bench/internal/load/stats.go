// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"math"
	"time"
)

const (
	// leastTime is the upper bound of the first bucket of a histogram.
	leastTime = 100 * time.Microsecond
	// growth is the ratio of the bounds of neighboring buckets, and so the error of a percentile.
	growth = 1.01
)

// Stats are what became of requests. Methods don't lock.
type Stats struct {
	Requests, Failed int64
	// Held are the requests that took longer than [Options.Held].
	Held int64
	// Longest is the time of the slowest request, failed ones included.
	Longest time.Duration
	// FirstFailure is the error of the first request that failed.
	FirstFailure error

	buckets []int64 // of all requests, by their time
}

func bucket(took time.Duration) int {
	if took <= leastTime {
		return 0
	}
	return int(math.Ceil(math.Log(float64(took)/float64(leastTime)) / math.Log(growth)))
}

func (s *Stats) note(took, held time.Duration, err error) {
	s.Requests++
	s.Longest = max(s.Longest, took)
	if took > held {
		s.Held++
	}
	if err != nil {
		s.Failed++
		if s.FirstFailure == nil {
			s.FirstFailure = err
		}
	}
	i := bucket(took)
	if i >= len(s.buckets) {
		s.buckets = append(s.buckets, make([]int64, i+1-len(s.buckets))...)
	}
	s.buckets[i]++
}

// Add adds the requests of other.
func (s *Stats) Add(other Stats) {
	s.Requests, s.Failed, s.Held = s.Requests+other.Requests, s.Failed+other.Failed, s.Held+other.Held
	s.Longest = max(s.Longest, other.Longest)
	if s.FirstFailure == nil {
		s.FirstFailure = other.FirstFailure
	}
	if more := len(other.buckets) - len(s.buckets); more > 0 {
		s.buckets = append(s.buckets, make([]int64, more)...)
	}
	for i, n := range other.buckets {
		s.buckets[i] += n
	}
}

// Percentile returns the time that p percent of the requests didn't exceed, at most 1 % too large; 0 if there were no requests.
func (s *Stats) Percentile(p float64) time.Duration {
	rank := int64(math.Ceil(p / 100 * float64(s.Requests)))
	for i, n := range s.buckets {
		if rank -= n; rank <= 0 && n > 0 {
			return min(s.Longest, time.Duration(float64(leastTime)*math.Pow(growth, float64(i))))
		}
	}
	return s.Longest
}

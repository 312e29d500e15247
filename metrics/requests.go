// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package metrics

import (
	"net/http"
	"strings"
	"sync/atomic"
)

// verb is what a request wants, as far as its method and parameters tell. What
// a tenant writes there finds one of these, or none.
type verb int

const (
	verbRead verb = iota
	verbWatch
	verbWrite
	verbDelete
	verbConnect
	verbOther
	verbs
)

func (v verb) String() string {
	return [verbs]string{"read", "watch", "write", "delete", "connect", "other"}[v]
}

// Verbs returns the names under which requests are counted.
func Verbs() (names []string) {
	for v := range verbs {
		names = append(names, v.String())
	}
	return names
}

func verbOf(r *http.Request) verb {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		if upgrades(r) {
			return verbConnect
		}
		if strings.Contains(r.URL.RawQuery, "watch=") {
			if watch := r.URL.Query().Get("watch"); watch == "1" || strings.EqualFold(watch, "true") {
				return verbWatch
			}
		}
		return verbRead
	case http.MethodPost:
		if upgrades(r) {
			return verbConnect
		}
		return verbWrite
	case http.MethodPut, http.MethodPatch:
		return verbWrite
	case http.MethodDelete:
		return verbDelete
	default:
		return verbOther
	}
}

// upgrades reports whether a request asks for another protocol, as exec does.
func upgrades(r *http.Request) bool {
	for _, connection := range r.Header.Values("Connection") {
		if strings.Contains(strings.ToLower(connection), "upgrade") {
			return true
		}
	}
	return false
}

// class is the first digit of a status code; 0 is an answer that was cut off.
type class int

const classes = 6

func classOf(code int) class {
	if c := class(code / 100); c > 0 && c < classes {
		return c
	}
	return 0
}

func (c class) String() string {
	return [classes]string{"aborted", "1xx", "2xx", "3xx", "4xx", "5xx"}[c]
}

// requests are those of one space.
type requests struct {
	ended    [verbs][classes]atomic.Uint64
	underWay [verbs]atomic.Int64
	// received and sent are bytes.
	received, sent atomic.Uint64
}

// VerbOf returns the verb under which a request is counted. long reports whether the request is a watch or a stream, which ends when the
// client wants.
func VerbOf(r *http.Request) (verb string, long bool) {
	v := verbOf(r)
	return v.String(), v.long()
}

func (v verb) long() bool { return v == verbWatch || v == verbConnect }

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bufio"
	"net"
	"net/http"

	"k8s.io/apiserver/pkg/endpoints/responsewriter"
)

// Meter counts the requests to spaces that exist.
type Meter interface {
	// Begin is called when a request has arrived. The function that it returns is called once, when the handler has
	// ended, with the status code of the response: 0 if there was none or it was cut off.
	Begin(space string, r *http.Request) (end func(code int))
	// Rejected is called when a request was rejected because the space has reached a limit.
	Rejected(space, limit string)
}

// metered serves a request, and counts it with the meter.
func metered(meter Meter, space string, next http.Handler, w http.ResponseWriter, r *http.Request) {
	end := meter.Begin(space, r)
	watched := &statusWriter{ResponseWriter: w}
	aborted := true // by a panic, which is how handlers cut off a response
	defer func() {
		if aborted {
			watched.code = 0
		}
		end(watched.code)
	}()
	next.ServeHTTP(responsewriter.WrapForHTTP1Or2(watched), r)
	if watched.code == 0 {
		watched.code = http.StatusOK // the default of net/http
	}
	aborted = false
}

// statusWriter records the status code.
type statusWriter struct {
	http.ResponseWriter
	code int
}

var _ responsewriter.UserProvidedDecorator = (*statusWriter)(nil)

// Unwrap implements [responsewriter.UserProvidedDecorator], and is used by [http.ResponseController].
func (s *statusWriter) Unwrap() http.ResponseWriter { return s.ResponseWriter }

func (s *statusWriter) WriteHeader(code int) {
	if s.code == 0 && code >= http.StatusOK {
		s.code = code
	}
	s.ResponseWriter.WriteHeader(code)
}

func (s *statusWriter) Write(b []byte) (int, error) {
	if s.code == 0 {
		s.code = http.StatusOK
	}
	return s.ResponseWriter.Write(b)
}

// Hijack passes the connection to the handler, which then writes the response itself.
func (s *statusWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	conn, stream, err := http.NewResponseController(s.ResponseWriter).Hijack()
	if err == nil && s.code == 0 {
		s.code = http.StatusSwitchingProtocols
	}
	return conn, stream, err
}

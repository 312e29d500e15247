// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenantfields

import (
	"mime"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/responsewriter"

	"github.com/berth-dev/berth/internal/httpstatus"
)

// maxPart is how much of a response is changed at once.
const maxPart = 64 << 10

// response adds the fields of full paths to a JSON response.
type response struct {
	http.ResponseWriter
	adder   adder
	refused func() error // why the request was refused while its body was read
	begun   bool
	rewrite bool
	discard bool // the response was replaced
}

var _ responsewriter.UserProvidedDecorator = (*response)(nil)

// Unwrap implements [responsewriter.UserProvidedDecorator], and serves [http.ResponseController].
func (w *response) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// WriteHeader implements [http.ResponseWriter].
func (w *response) WriteHeader(code int) {
	if code < http.StatusOK { // another response follows, or another protocol
		w.ResponseWriter.WriteHeader(code)
		return
	}
	if w.begun {
		return
	}
	w.begun = true
	if err := w.refused(); err != nil {
		w.refuse(err)
		return
	}
	header := w.Header()
	if code < http.StatusMultipleChoices && isJSON(header.Get("Content-Type")) && header.Get("Content-Encoding") == "" {
		w.rewrite = true
		header.Del("Content-Length")
	}
	w.ResponseWriter.WriteHeader(code)
}

// Write implements [http.ResponseWriter].
func (w *response) Write(p []byte) (int, error) {
	if !w.begun {
		w.WriteHeader(http.StatusOK)
	}
	switch {
	case w.discard:
		return len(p), nil
	case !w.rewrite:
		return w.ResponseWriter.Write(p)
	}
	for left := p; len(left) > 0; {
		part := left[:min(len(left), maxPart)]
		changed, rest := w.adder.add(part)
		if _, err := w.ResponseWriter.Write(changed); err != nil {
			return len(p) - len(left), err
		}
		left = left[len(part)-len(rest):]
	}
	return len(p), nil
}

// finish ends the response.
func (w *response) finish() {
	if err := w.refused(); err != nil && !w.begun {
		w.begun = true
		w.refuse(err)
	}
}

// refuse responds with the reason why the API server did not get the whole request. What the API server responds to half a
// request would not say why.
func (w *response) refuse(err error) {
	w.discard = true
	w.Header().Del("Content-Length")
	w.Header().Del("Content-Encoding")
	w.Header().Del("Retry-After") // of a dedicated space's process
	httpstatus.Write(w.ResponseWriter, http.StatusBadRequest, metav1.StatusReasonBadRequest, err.Error(), 0)
}

func isJSON(contentType string) bool {
	kind, _, err := mime.ParseMediaType(contentType)
	return err == nil && kind == "application/json"
}

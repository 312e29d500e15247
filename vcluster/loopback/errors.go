// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package loopback

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
)

const (
	// shortError is how many bytes of an error are passed on as they are, and how many of its message are kept.
	shortError = 4 << 10
	// longestError is how many bytes of an error are read.
	longestError = 4 << 20
	// fewCauses is how many of its causes are kept.
	fewCauses = 10
)

// shortenError cuts the message of an error that controllers get. A tenant's webhook may say up to 3 MiB, and recorders of events
// remember the messages of thousands of events, as the controller of namespaces does those of all resources that it deletes.
func shortenError(resp *http.Response) {
	if resp.StatusCode < http.StatusBadRequest {
		return
	}
	body := resp.Body
	text, err := io.ReadAll(io.LimitReader(body, longestError))
	if err == nil && len(text) > shortError {
		text = shortened(text, resp.Header)
	}
	resp.Body = readBody{io.MultiReader(bytes.NewReader(text), failing{err}), body}
}

func shortened(text []byte, header http.Header) []byte {
	object, _, err := scheme.Codecs.UniversalDeserializer().Decode(text, nil, nil)
	status, ok := object.(*metav1.Status)
	if err != nil || !ok {
		return bytes.Clone(text[:shortError])
	}
	short := func(s string) string { return strings.ToValidUTF8(strings.Clone(s[:min(len(s), shortError)]), "") }
	kept := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: status.Code, Reason: metav1.StatusReason(short(string(status.Reason))), Message: short(status.Message),
	}
	if d := status.Details; d != nil {
		kept.Details = &metav1.StatusDetails{Name: short(d.Name), Group: short(d.Group), Kind: short(d.Kind), RetryAfterSeconds: d.RetryAfterSeconds}
		for _, c := range d.Causes[:min(len(d.Causes), fewCauses)] {
			kept.Details.Causes = append(kept.Details.Causes, metav1.StatusCause{
				Type: metav1.CauseType(short(string(c.Type))), Message: short(c.Message), Field: short(c.Field),
			})
		}
	}
	encoded, err := json.Marshal(kept)
	if err != nil {
		return nil // it has JSON
	}
	header.Set("Content-Type", "application/json")
	header.Del("Content-Length")
	return encoded
}

// readBody is a body that has been read.
type readBody struct {
	io.Reader
	io.Closer
}

// failing is the end of what has been read.
type failing struct{ err error }

func (f failing) Read([]byte) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	return 0, io.EOF
}

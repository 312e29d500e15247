// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package requests

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"

	"github.com/berth-dev/berth/vcluster/fields"
	"github.com/berth-dev/berth/vcluster/inside"
	"github.com/berth-dev/berth/vcluster/refusal"
)

// BoundFields refuses documents with too many fields before they are decoded: field managers and validation take time that is
// quadratic in their number. Those of the space's own controllers, which only write what tenants have written, are not bounded.
func BoundFields(isLong apirequest.LongRunningRequestCheck, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		info, ok := apirequest.RequestInfoFrom(r.Context())
		if ok && info.IsResourceRequest && r.Body != nil && writes(r) && !isLong(r, info) && !inside.Is(r.Context()) {
			r.Body = fieldsBody(r.Header.Get("Content-Type"), r.Body)
		}
		next.ServeHTTP(w, r)
	})
}

// fieldsBody chooses by what is before the parameters of a content type, in any case, as an API server does.
func fieldsBody(contentType string, body io.ReadCloser) io.ReadCloser {
	media, _, _ := strings.Cut(contentType, ";")
	media = strings.ToLower(strings.TrimSpace(media))
	switch {
	case media == "", strings.HasSuffix(media, "json"):
		return &boundedJSON{body, fields.NewDocument(media == string(types.JSONPatchType))}
	case media == runtime.ContentTypeProtobuf:
		return &boundedDocument{ReadCloser: body, count: fields.OfProtobuf}
	case strings.HasSuffix(media, "yaml"):
		return &boundedDocument{ReadCloser: body, count: fields.OfYAML}
	}
	return body
}

// boundedJSON counts a document while it is read.
type boundedJSON struct {
	io.ReadCloser
	document *fields.Document
}

func (b *boundedJSON) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	_, _ = b.document.Write(p[:n])
	if errors.Is(err, io.EOF) { // at the end, so that the error says how many there are; nothing is decoded before
		if exceeded := b.document.Count().Check(); exceeded != nil {
			return 0, apierrors.NewForbidden(refusal.NoResource, "", exceeded)
		}
	}
	return n, err
}

const (
	// bodyBytes is the longest body that an API server decodes.
	bodyBytes = 3 << 20
	// fewBytes is a body that is too short for too many fields.
	fewBytes = 4 << 10
)

// boundedDocument reads a document that is counted as a whole.
type boundedDocument struct {
	io.ReadCloser
	count func([]byte) fields.Count
	rest  io.Reader // nil before the first read
}

func (b *boundedDocument) Read(p []byte) (int, error) {
	if b.rest == nil {
		document, err := io.ReadAll(io.LimitReader(b.ReadCloser, bodyBytes+1))
		if err != nil {
			return 0, err
		}
		b.rest = io.MultiReader(bytes.NewReader(document), b.ReadCloser)
		if n := len(document); n > fewBytes && n <= bodyBytes {
			if exceeded := b.count(document).Check(); exceeded != nil {
				return 0, apierrors.NewForbidden(refusal.NoResource, "", exceeded)
			}
		}
	}
	return b.rest.Read(p)
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package aggregation

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

const (
	// maxDocument is how many bytes a server may say of its resources: five times
	// what all built-in APIs together are.
	maxDocument = 256 << 10
	// maxTokens is how many names, values and brackets these may be: decoded, a
	// short one takes as much memory as a long one.
	maxTokens = 16 << 10
	// maxAnswer and maxValues are the same of another answer that the control plane
	// itself reads.
	maxAnswer, maxValues = 4 << 20, 64 << 10
	// maxFailure and maxReasons are the same of one that says why there is none.
	maxFailure, maxReasons = 16 << 10, 1 << 10
)

var errTooLong = errors.New("the answer is too long")

// readJSON reads a document of at most so many bytes and so many names, values and
// brackets. Nothing at all is one, too.
func readJSON(r io.Reader, size, tokens int) ([]byte, error) {
	document, err := io.ReadAll(io.LimitReader(r, int64(size)+1))
	if err != nil {
		return nil, err
	}
	if len(document) > size {
		return nil, fmt.Errorf("%w: more than %d bytes", errTooLong, size)
	}
	decoder := json.NewDecoder(bytes.NewReader(document))
	for range tokens {
		if _, err := decoder.Token(); errors.Is(err, io.EOF) {
			// Brackets may be open still: a server that is hung up on has time to end
			// its answer in due form.
			if len(document) > 0 && !json.Valid(document) {
				return nil, errors.New("the answer is not one whole JSON document")
			}
			return document, nil
		} else if err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: more than %d names and values", errTooLong, tokens)
}

// inward makes an answer one that the control plane itself may read: its clients keep
// what is decoded, believe how long they are to wait, and log warnings. What is no JSON
// can't be measured, and is left out.
func inward(r *http.Response) error {
	if err := noRedirect(r); err != nil {
		return err
	}
	var document []byte
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err == nil && media == runtime.ContentTypeJSON {
		if r.StatusCode >= http.StatusBadRequest {
			document = failure(r)
		} else if document, err = readJSON(r.Body, maxAnswer, maxValues); err != nil {
			return err
		}
	}
	_ = r.Body.Close()
	r.Header, r.Trailer = http.Header{"Content-Type": {"text/plain"}}, nil
	if document != nil {
		r.Header.Set("Content-Type", runtime.ContentTypeJSON)
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(document)), int64(len(document))
	return nil
}

// failure is what is kept of why there is no answer, nil if it can't be told.
func failure(r *http.Response) []byte {
	document, err := readJSON(r.Body, maxFailure, maxReasons)
	if err != nil {
		return nil
	}
	said := metav1.Status{}
	if json.Unmarshal(document, &said) != nil {
		return nil
	}
	document, err = json.Marshal(&metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Code: int32(r.StatusCode), //nolint:gosec // three digits
		Reason: metav1.StatusReason(short(string(said.Reason))), Message: short(said.Message),
	})
	if err != nil {
		return nil
	}
	return document
}

// short cuts what a server has its say in.
func short(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	return strings.ToValidUTF8(message[:maxMessage], "")
}

// jsonOf is what of an Accept header asks for JSON.
func jsonOf(accept string) string {
	asked := slices.DeleteFunc(strings.Split(accept, ","), func(a string) bool {
		media, _, err := mime.ParseMediaType(a)
		return err != nil || media != runtime.ContentTypeJSON
	})
	if len(asked) == 0 {
		return runtime.ContentTypeJSON
	}
	return strings.Join(asked, ",")
}

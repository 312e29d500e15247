// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenantfields

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// maxPatch is the size of the JSON patches that are read. Larger ones are left alone.
const maxPatch = 64 << 10

// readPatch checks the operations of a JSON patch that are about metadata.tenant, and removes them.
func readPatch(tenant string, r *http.Request) error {
	document, err := io.ReadAll(io.LimitReader(r.Body, maxPatch+1))
	rest := r.Body
	if err != nil || len(document) > maxPatch {
		r.Body = readCloser{io.MultiReader(bytes.NewReader(document), rest), rest} // which has the error, too
		return nil
	}
	document, err = patchWithout(tenant, document)
	if err != nil {
		return err
	}
	r.Body = readCloser{bytes.NewReader(document), rest}
	if r.ContentLength >= 0 {
		r.ContentLength = int64(len(document))
		r.Header.Set("Content-Length", strconv.Itoa(len(document)))
	}
	return nil
}

type readCloser struct {
	io.Reader
	io.Closer
}

// patchWithout returns a JSON patch without operations on metadata.tenant. It returns other patches, and what is none,
// unchanged.
func patchWithout(tenant string, document []byte) ([]byte, error) {
	if !bytes.Contains(document, []byte("tenant")) && bytes.IndexByte(document, '\\') < 0 {
		return document, nil // most patches
	}
	var operations, kept []json.RawMessage
	if json.Unmarshal(document, &operations) != nil {
		return document, nil
	}
	changed := false
	for _, operation := range operations {
		result, err := withoutTenant(tenant, operation)
		if err != nil {
			return nil, err
		}
		changed = changed || !bytes.Equal(result, operation)
		if result != nil {
			kept = append(kept, result)
		}
	}
	if !changed {
		return document, nil
	}
	return append(append([]byte{'['}, bytes.Join(bytesOf(kept), []byte{','})...), ']'), nil
}

func bytesOf(messages []json.RawMessage) [][]byte {
	out := make([][]byte, 0, len(messages))
	for _, m := range messages {
		out = append(out, m)
	}
	return out
}

// withoutTenant returns an operation without what it says about metadata.tenant; nil if it says nothing else.
func withoutTenant(tenant string, operation json.RawMessage) (json.RawMessage, error) {
	fields := map[string]json.RawMessage{} // as API servers decode it: of two fields of one name, the last one counts
	var op, path string
	if json.Unmarshal(operation, &fields) != nil || json.Unmarshal(fields["path"], &path) != nil || json.Unmarshal(fields["op"], &op) != nil {
		return operation, nil
	}
	value := fields["value"]
	root := apiObject
	if _, pointer, ok := strings.Cut(path, "/"); ok {
		path = "/" + pointer // API servers ignore what is before the first slash
	}
	switch path {
	case "/metadata/tenant":
		switch op {
		case "remove":
			return nil, nil
		case "add", "replace", "test":
			return nil, checkTenant(tenant, value)
		}
		return nil, fmt.Errorf("metadata.tenant: the operation %.20q can't set it; the URL is for the tenant %s; remove the operation", op, tenant)
	case "/metadata":
		root = metadata
	case "":
	default:
		return operation, nil
	}
	m := newRemover(tenant)
	m.root = root
	out, err := m.remove(value)
	if err != nil || bytes.Equal(out, value) {
		return operation, err
	}
	fields["value"] = append(json.RawMessage{}, out...)
	return json.Marshal(fields)
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dbms_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/berth-dev/berth/kine/dbms"
)

// D4: files are decoded as they were encoded, and nothing else is taken for files.
func TestFilesAreDecoded(t *testing.T) {
	for _, files := range []map[string][]byte{nil, {}, {"node.key": []byte("key"), "empty": {}, "pki/ca.crt": bytes.Repeat([]byte("x"), 10_000)}} {
		text, err := json.Marshal(files)
		if err != nil {
			t.Fatal(err)
		}
		if decoded, err := dbms.DecodeFiles(text); err != nil || !maps.EqualFunc(decoded, files, bytes.Equal) {
			t.Errorf("%s is decoded as %v, %v", text[:min(len(text), 100)], decoded, err)
		}
	}
	for _, text := range []string{"", "[]", "7", `{"a":7}`, `{"a":"b"`, `{"a":"YQ=="`, `{"a"`, `{"a":["YQ=="]}`} {
		if files, err := dbms.DecodeFiles([]byte(text)); err == nil {
			t.Errorf("%q is decoded as %v", text, files)
		}
	}
}

// D3: many small files, which would take much memory, are refused.
func TestHostileManyFilesAreRefused(t *testing.T) {
	var text strings.Builder
	for i := range dbms.MaxFileCount + 1 {
		fmt.Fprintf(&text, `%s"%d":""`, map[bool]string{true: "{", false: ","}[i == 0], i)
	}
	text.WriteString("}")
	if files, err := dbms.DecodeFiles([]byte(text.String())); err == nil {
		t.Errorf("%d files are decoded", len(files))
	}
}

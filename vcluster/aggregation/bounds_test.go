// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package aggregation

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
)

func TestWhatAServerSaysIsBounded(t *testing.T) {
	for reason, c := range map[string]struct {
		document io.Reader
		ok, long bool
	}{
		"a document":            {strings.NewReader(`{"items":[{"a":1},null,true,"x"]}`), true, false},
		"nothing":               {strings.NewReader(""), true, false},
		"as long as may be":     {strings.NewReader(`"` + strings.Repeat("a", maxDocument-2) + `"`), true, false},
		"longer":                {strings.NewReader(`"` + strings.Repeat("a", maxDocument-1) + `"`), false, true},
		"many short values":     {strings.NewReader("[" + strings.Repeat("0,", maxTokens) + "0]"), false, true},
		"deep":                  {strings.NewReader(strings.Repeat("[", maxTokens)), false, true},
		"no JSON":               {strings.NewReader("k8s\x00"), false, false},
		"an open list":          {strings.NewReader(`[`), false, false},
		"an open object":        {strings.NewReader(`{"items":[],"a":`), false, false},
		"two documents":         {strings.NewReader(`{} {}`), false, false},
		"it ends in the middle": {io.MultiReader(strings.NewReader(`{"a":`), iotest.ErrReader(io.ErrUnexpectedEOF)), false, false},
	} {
		t.Run(reason, func(t *testing.T) {
			_, err := readJSON(c.document, maxDocument, maxTokens)
			if (err == nil) != c.ok || errors.Is(err, errTooLong) != c.long {
				t.Errorf("got %v", err)
			}
		})
	}
}

func TestPathsOfServers(t *testing.T) {
	var s Services
	if s.Has("example.com/v1") || s.OpenAPI() != nil {
		t.Error("there is one before there is")
	}
	for _, name := range []string{"v1.example.com", "v2.example.com"} {
		if !s.put(name, &server{}) {
			t.Fatal("the bound is reached")
		}
	}
	for path, want := range map[string]bool{
		"/apis/example.com/v1":              true,
		"/apis/example.com/v2/":             true,
		"/apis/example.com/v1/things/a":     true,
		"/openapi/v3/apis/example.com/v1":   true,
		"/openapi/v3/apis/example.com/v1/x": false,
		"/openapi/v3":                       false,
		"/openapi/v2/apis/example.com/v1":   false,
		"/apis":                             false,
		"/apis/":                            false,
		"/apis/example.com":                 false,
		"/apis/example.com/v3":              false,
		"/apis/v1.example.com":              false,
		"/api/v1":                           false,
		"/apis/apps/v1":                     false,
		"/x/apis/example.com/v1":            false,
	} {
		if got := s.at(path) != nil; got != want {
			t.Errorf("%s: %v", path, got)
		}
	}
	if !s.Has("example.com/v1") || s.Has("example.com/v3") {
		t.Error("group versions are taken for others")
	}
}

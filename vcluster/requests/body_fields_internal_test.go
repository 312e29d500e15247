// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package requests

import (
	"errors"
	"io"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
)

var errReading = errors.New("a fault")

// A body that can't be read any further for another reason, such as the space's memory, says so.
func TestABodyThatFailsKeepsItsError(t *testing.T) {
	long := io.MultiReader(strings.NewReader(`{"a":[1`+strings.Repeat(",1", 12_000)), failingReader{})
	for _, contentType := range []string{runtime.ContentTypeJSON, runtime.ContentTypeYAML} {
		if _, err := io.ReadAll(fieldsBody(contentType, io.NopCloser(long))); !errors.Is(err, errReading) {
			t.Errorf("%s: %v", contentType, err)
		}
	}
}

type failingReader struct{}

func (failingReader) Read([]byte) (int, error) { return 0, errReading }

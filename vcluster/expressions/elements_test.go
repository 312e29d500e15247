// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package expressions_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/cel-go/common/types"

	"github.com/berth-dev/berth/vcluster/expressions"
)

// L3: a text whose characters are all escaped is six times as long as JSON.
func TestHostileTextsCountAsTheyAreWritten(t *testing.T) {
	for _, characters := range []string{"<", "&", "\x01", "\"", "\\", "\u2028", "a", "ä", "<a>"} {
		text := strings.Repeat(characters, 10_000)
		document, err := json.Marshal(map[string]any{"x": []any{text}})
		if err != nil {
			t.Fatal(err)
		}
		for name, v := range map[string]any{"text": text, "list": []any{text}, "texts": []string{text}, "map": map[string]any{"a": text}, "key": map[string]any{text: 1}} {
			n := int(expressions.Bytes(types.DefaultTypeAdapter.NativeToValue(v)))
			if n < len(document)-100 || n > 2*len(document) {
				t.Errorf("a %s of %q has %d bytes, and counts %d", name, characters, len(document), n)
			}
		}
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostpolicy

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// literal is an expression for a value of JSON. All items of a list in CEL have the same type, so each is of any.
func literal(value any) string {
	switch value := value.(type) {
	case nil:
		return "null"
	case string:
		return strconv.QuoteToASCII(value)
	case float64:
		text := strconv.FormatFloat(value, 'f', -1, 64)
		if !strings.Contains(text, ".") {
			text += ".0"
		}
		return text
	case []any:
		var items []string
		for _, item := range value {
			items = append(items, "dyn("+literal(item)+")")
		}
		return "[" + strings.Join(items, ", ") + "]"
	case map[string]any:
		var items []string
		for _, name := range slices.Sorted(maps.Keys(value)) {
			items = append(items, strconv.QuoteToASCII(name)+": dyn("+literal(value[name])+")")
		}
		return "{" + strings.Join(items, ", ") + "}"
	default: // a boolean or an integer
		return fmt.Sprint(value)
	}
}

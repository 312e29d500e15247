// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fieldpath parses the paths of fields in objects, such as metadata.annotations["example.com/team"], and sets such
// fields. It is pure.
package fieldpath

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// MaxSteps is how many steps a path may have. Deeper objects are refused by API servers anyway.
const MaxSteps = 64

// Path is the way from an object to one of its fields.
type Path struct {
	text  string
	steps []step
}

// step leads to a key of a map or, if key is empty and inList is set, to an element of a list: that of an index, or each one.
type step struct {
	key    string
	index  int
	inList bool
	each   bool
}

// String returns the path as it was parsed.
func (p Path) String() string { return p.text }

// Parse parses a path: names with dots between them, and keys and indexes in brackets, such as spec.rules[0].hosts or
// data["tenant.yaml"]. A name consists of letters, digits, - and _; other keys are JSON strings in brackets. The index [*] stands for each
// element of a list, such as spec.containers[*].image.
func Parse(text string) (Path, error) {
	p := Path{text: text}
	for rest := text; rest != ""; {
		next, after, err := parseStep(rest, len(p.steps) == 0)
		if err != nil {
			return Path{}, fmt.Errorf("path %q, at character %d: %w", text, len(text)-len(rest)+1, err)
		}
		if len(p.steps) == MaxSteps {
			return Path{}, fmt.Errorf("path %q has more than %d steps; use a shorter path", text, MaxSteps)
		}
		p.steps, rest = append(p.steps, next), after
	}
	if len(p.steps) == 0 {
		return Path{}, errors.New("the path is empty; use one such as data.tenant")
	}
	return p, nil
}

func parseStep(text string, first bool) (_ step, rest string, _ error) {
	if text[0] == '[' {
		if first {
			return step{}, "", errors.New("a path begins with the name of a field")
		}
		return parseBracket(text[1:])
	}
	if !first {
		if text[0] != '.' {
			return step{}, "", fmt.Errorf("%q is not expected; put . or [ before the next step", text[0])
		}
		text = text[1:]
	}
	end := strings.IndexFunc(text, func(r rune) bool { return !isNameRune(r) })
	if end < 0 {
		end = len(text)
	}
	if end == 0 {
		return step{}, "", errors.New("a name is missing; names have letters, digits, - and _, and other keys are in brackets, such as [\"a.b/c\"]")
	}
	return step{key: text[:end]}, text[end:], nil
}

// parseBracket parses what follows an opening bracket: a JSON string or an index.
func parseBracket(text string) (_ step, rest string, _ error) {
	if strings.HasPrefix(text, `"`) {
		decoder := json.NewDecoder(strings.NewReader(text))
		var key string
		if err := decoder.Decode(&key); err != nil {
			return step{}, "", errors.New("the key in brackets is not a JSON string")
		}
		rest = text[decoder.InputOffset():]
		if key == "" || !strings.HasPrefix(rest, "]") {
			return step{}, "", errors.New("a key in brackets has the form [\"key\"]")
		}
		return step{key: key}, rest[1:], nil
	}
	digits, rest, found := strings.Cut(text, "]")
	if found && digits == "*" {
		return step{inList: true, each: true}, rest, nil
	}
	index, err := strconv.ParseUint(digits, 10, 16)
	if !found || err != nil {
		return step{}, "", errors.New("an index has the form [0] or [*], and a key the form [\"key\"]")
	}
	return step{index: int(index), inList: true}, rest, nil
}

func isNameRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_'
}

// Settable returns an error if the field identifies the object, or is set by the API server or by Berth.
func (p Path) Settable() error {
	first, second, third := p.key(0), p.key(1), p.key(2)
	switch {
	case slices.Contains([]string{"apiVersion", "kind", "status"}, first):
	case first == "metadata" && second != "labels" && second != "annotations":
	case first == "metadata" && (strings.HasPrefix(third, "berth.dev/") || strings.Contains(third, ".berth.dev/")):
	default:
		return nil
	}
	return fmt.Errorf("path %q can't be set; of metadata, set labels and annotations outside of berth.dev, and apart from it any field but apiVersion, "+
		"kind, and status", p.text)
}

// Name returns the name that a step of the path has; it is empty if the path is shorter, and for an element of a list.
func (p Path) Name(i int) string { return p.key(i) }

func (p Path) key(i int) string {
	if i >= len(p.steps) {
		return ""
	}
	return p.steps[i].key
}

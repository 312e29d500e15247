// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package expressions

import (
	"fmt"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"

	"github.com/berth-dev/berth/bounds"
)

// boundedText is a function that returns its first argument, a text that is not too long for the pattern that it is matched
// with next. The others are the length of the pattern's program, and what scans returns. CEL counts what a match costs after it,
// and nothing interrupts it. Nobody can write the function's name.
const (
	boundedText         = "@bounded_text"
	boundedTextOverload = "bounded_text_string_int_int"
)

// findAll is the function that matches a text several times, each time up to its end: the pattern a*b|a finds each a of a text.
const findAll = "findAll"

// charactersPerScan is how long a part of a text is taken for that one of several matches finds: fewer than the longest text
// has, more than the worst pattern finds.
const charactersPerScan = 10

// scans is one part of a text in how many characters is matched again, up to the end of the text; 0 if none is.
func scans(function string) int64 {
	if function == findAll {
		return charactersPerScan
	}
	return 0
}

// times is how often a text of n characters is matched.
func times(n, scans int64) int64 {
	if scans == 0 {
		return 1
	}
	return max(1, n/scans)
}

// checkText returns a text, or an error if to match it takes too long.
func checkText(args ...ref.Val) ref.Val {
	if len(args) != 3 {
		return types.NoSuchOverloadErr()
	}
	text, isText := args[0].(types.String)
	instructions, isNumber := args[1].(types.Int)
	scans, isScans := args[2].(types.Int)
	if !isText || !isNumber || !isScans {
		return types.MaybeNoSuchOverloadErr(args[0])
	}
	n := size(text)
	if err := bounds.MatchSteps.Check(n * int64(instructions) * times(n, int64(scans))); err != nil {
		return types.WrapErr(fmt.Errorf("text to match: %w", err))
	}
	return text
}

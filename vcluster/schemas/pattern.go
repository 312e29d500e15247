// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package schemas

import "regexp/syntax"

const (
	// runesPerInstruction is how many runes of a character class take as much memory as an instruction. A program that
	// needs no backtracking holds the runes of each instruction.
	runesPerInstruction = 16
	// maxInstructions keeps the estimate from overflowing. Package syntax refuses larger repetitions than 1000, nested
	// ones too.
	maxInstructions = 1 << 30
)

// Instructions estimates, from above, the length of the program that a pattern is compiled to. It is zero for what is no
// pattern, which validation refuses.
func Instructions(pattern string) int {
	parsed, err := syntax.Parse(pattern, syntax.Perl)
	if err != nil {
		return 0
	}
	return programLength(parsed)
}

func programLength(r *syntax.Regexp) int {
	n := 0
	for _, sub := range r.Sub {
		n = min(n+programLength(sub)+1, maxInstructions)
	}
	switch r.Op {
	case syntax.OpLiteral:
		return len(r.Rune)
	case syntax.OpCharClass:
		return 1 + len(r.Rune)/runesPerInstruction
	case syntax.OpRepeat:
		return min(n*max(r.Min+1, r.Max), maxInstructions) + 1
	}
	return n + 1
}

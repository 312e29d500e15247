// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package quantities

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/berth-dev/berth/bounds"
)

// Check returns an error if a quantity has too many digits, or too large an exponent. What is no quantity upstream refuses.
func Check(quantity string) error {
	if err := bounds.QuantityDigits.Check(digits(quantity)); err != nil {
		return fmt.Errorf("the quantity %s: %w", short(quantity), err)
	}
	return nil
}

// digits of a number, or its exponent if that is more.
func digits(number string) int64 {
	number = strings.TrimLeft(strings.TrimSpace(number), "+-")
	written := len(number) - len(strings.TrimLeft(number, "0123456789."))
	rest := number[written:]
	if len(rest) < 2 || rest[0]|0x20 != 'e' {
		return int64(written)
	}
	exponent, err := strconv.ParseInt(rest[1:], 10, 64)
	switch {
	case err != nil && exponent == 0: // it is another suffix
		return int64(written)
	case exponent == math.MinInt64:
		exponent = math.MaxInt64
	case exponent < 0:
		exponent = -exponent
	}
	return max(int64(written), exponent)
}

// exponentDigits is how many digits the exponents have at least that Check refuses, and manyDigits how many digits numbers have.
const exponentDigits, manyDigits = 4, 1000

// Suspect tells whether a document may hold a text or a number that Check refuses: it holds one, or what looks like one within
// another text, or is written with escapes. A document is JSON, YAML, or an API server's protobuf.
func Suspect(document []byte) bool {
	protobuf := isProtobuf(document)
	run := 0 // digits before i
	for i, c := range document {
		switch {
		case '0' <= c && c <= '9' || c == '.':
			if run++; run > manyDigits {
				return true
			}
			continue
		case c|0x20 == 'e':
			if n := exponent(document[i+1:]); n > 0 && (protobuf || stands(document[:i-run], document[i+1+n:])) {
				return true
			}
		case c == '\\' && !protobuf && writesDigit(document[i+1:]):
			return true
		case c == '!' && !protobuf && (i == 0 || strings.IndexByte(" \t\r\n:,[{", document[i-1]) >= 0): // of YAML's !!binary
			return true
		}
		run = 0
	}
	return false
}

// exponent is how long the exponent is that a text begins with, if it has many digits.
func exponent(text []byte) int {
	n := 0
	if len(text) > 0 && (text[0] == '+' || text[0] == '-') {
		n++
	}
	first := n
	for n < len(text) && '0' <= text[n] && text[n] <= '9' {
		n++
	}
	if n-first < exponentDigits {
		return 0
	}
	return n
}

// stands tells whether a number stands by itself between two parts of a document, rather than within another text.
func stands(before, after []byte) bool {
	if n := len(before); n > 0 && (before[n-1] == '+' || before[n-1] == '-') {
		before = before[:n-1]
	}
	return (len(before) == 0 || !inWord(before[len(before)-1])) && (len(after) == 0 || !inWord(after[0]))
}

func inWord(c byte) bool {
	return '0' <= c && c <= '9' || 'a' <= c|0x20 && c|0x20 <= 'z' || strings.IndexByte("._-+/@", c) >= 0
}

// writesDigit tells whether an escape, without its backslash, may be one of a character of a number.
func writesDigit(escape []byte) bool {
	if len(escape) == 0 {
		return false
	}
	width := 0
	switch escape[0] {
	case 'x':
		width = 2
	case 'u':
		width = 4
	case 'U':
		width = 8
	case '\r', '\n': // YAML goes on with the text in the next line
		return true
	}
	if width == 0 || len(escape) <= width {
		return false
	}
	character, err := strconv.ParseUint(string(escape[1:1+width]), 16, 32)
	return err == nil && character < 0x80 && strings.IndexByte("0123456789.+-eE", byte(character)) >= 0
}

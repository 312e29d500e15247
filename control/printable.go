// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package control

import (
	"strings"
	"unicode"
)

// Printable makes text from an untrusted source safe to print: on one line, without characters that a terminal or a log
// interprets, and truncated to most bytes, with an ellipsis.
func Printable(text string, most int) string {
	cut := len(text) > most
	if cut {
		text = text[:most]
	}
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t':
			return ' '
		case r == unicode.ReplacementChar, !unicode.IsPrint(r): // ReplacementChar stands for bytes that are not valid UTF-8
			return -1
		}
		return r
	}, text)
	if cut {
		text += " ..."
	}
	return text
}

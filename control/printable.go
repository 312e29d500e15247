// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package control

import (
	"strings"
	"unicode"
)

// Printable returns text from somebody who isn't trusted as it may be shown: without what a terminal or a log would act on,
// on one line, and cut to most bytes, which are followed by an ellipsis.
func Printable(text string, most int) string {
	cut := len(text) > most
	if cut {
		text = text[:most]
	}
	text = strings.Map(func(r rune) rune {
		switch {
		case r == '\n', r == '\t':
			return ' '
		case r == unicode.ReplacementChar, !unicode.IsPrint(r): // the former is what no character's bytes are mapped to
			return -1
		}
		return r
	}, text)
	if cut {
		text += " ..."
	}
	return text
}

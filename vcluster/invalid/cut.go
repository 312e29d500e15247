// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package invalid

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

const (
	// MaxErrors is how many errors an answer lists.
	MaxErrors = 100
	// maxErrorBytes is the length of one of them: an error may have the whole object in it.
	maxErrorBytes = 4 << 10
	// maxPartBytes is the length of the parts of an error that is too long.
	maxPartBytes = 1 << 10
	// maxBytes is how much text is made to find out how long the errors are. When it is reached, no more are listed.
	maxBytes = 4 << 20
)

// Cut returns the first errors of a list, shortened, and one more that says how many there are. A short list stays as it is.
func Cut(errs field.ErrorList) field.ErrorList { return cut(errs, "") }

// cut likewise. If the errors were not counted to the end, more says so.
func cut(errs field.ErrorList, more string) field.ErrorList {
	listed := make(field.ErrorList, 0, min(len(errs), MaxErrors+1))
	bytes := 0
	for _, e := range errs {
		if len(listed) == MaxErrors || bytes > maxBytes {
			break
		}
		n := len(e.Error())
		if n > maxErrorBytes {
			e = shorten(e)
		}
		bytes += n
		listed = append(listed, e)
	}
	if len(listed) < len(errs) || more != "" {
		listed = append(listed, &field.Error{
			Type: field.ErrorTypeTooMany, Field: "object", BadValue: len(errs),
			Detail: fmt.Sprintf("errors%s, of which only the first %d are listed", more, len(listed)),
		})
	}
	return listed
}

// shorten leaves out the value of an error, and ends its texts early.
func shorten(e *field.Error) *field.Error {
	short := *e
	short.BadValue = field.OmitValueType{}
	short.Field = begin(e.Field)
	short.Detail = begin(e.Detail)
	return &short
}

func begin(s string) string {
	if len(s) <= maxPartBytes {
		return s
	}
	return strings.ToValidUTF8(s[:maxPartBytes], "") + "..."
}

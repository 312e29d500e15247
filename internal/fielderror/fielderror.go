// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fielderror has the error of a value that a person gave, in a flag or in a field of the configuration.
package fielderror

import "fmt"

// Error says what is wrong with the value of a field of the configuration. Field is in kebab case, as flags are.
type Error struct {
	Field, Value string
	Err          error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("%s: %v", e.Field, e.Err)
	}
	return fmt.Sprintf("%s=%s: %v", e.Field, e.Value, e.Err)
}

// Unwrap returns the reason.
func (e *Error) Unwrap() error { return e.Err }

// New returns an [*Error] whose reason is formatted as by [fmt.Errorf].
func New(field string, value any, format string, args ...any) error {
	return &Error{Field: field, Value: fmt.Sprint(value), Err: fmt.Errorf(format, args...)}
}

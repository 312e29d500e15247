// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

// Wanted is what the process of a dedicated space asks the platform for, in JSON.
type Wanted struct {
	// ID tells this question from others. It is zero if the process asks for nothing now.
	ID uint64 `json:"id,omitempty"`
	// Has and More are those of a [Request].
	Has  Amounts `json:"has,omitempty"`
	More Amounts `json:"more,omitempty"`
	// OnHost is that of a [Request].
	OnHost bool `json:"onHost,omitempty"`
}

// Answer is the platform's answer to [Wanted], in JSON.
type Answer struct {
	// ID is that of the question; zero if the space is to try again what was refused.
	ID uint64 `json:"id,omitempty"`
	// Hard is what the host lets the space use.
	Hard Amounts `json:"hard,omitempty"`
	// Refused says which quota doesn't allow it, and Failed why it isn't known.
	Refused *Exceeded `json:"refused,omitempty"`
	Failed  string    `json:"failed,omitempty"`
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"regexp"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Wanted is what the process of a dedicated space asks the platform for, in JSON.
type Wanted struct {
	// ID tells this question from others. It is zero if the process asks for nothing now.
	ID uint64 `json:"id,omitempty"`
	// Has and More are those of a [Request].
	Has  Untrusted `json:"has,omitempty"`
	More Untrusted `json:"more,omitempty"`
	// OnHost is that of a [Request].
	OnHost bool `json:"onHost,omitempty"`
}

// Untrusted are amounts as somebody says them who may be hostile: some quantities take hours to parse, or to compare.
type Untrusted map[string]string

const (
	// maxUntrusted limits how many resources are read of untrusted amounts, and maxResourceName the length of their names.
	maxUntrusted, maxResourceName = 200, 317
)

// plainAmount matches amounts that are harmless.
var plainAmount = regexp.MustCompile(`^[0-9]{1,18}(\.[0-9]{1,9})?([a-zA-Z]{0,2}|[eE][+-]?[0-9]{1,2})$`)

// Amounts returns the amounts that are more than zero and harmless.
func (u Untrusted) Amounts() Amounts {
	some := Amounts{}
	for name, text := range u {
		if len(some) == maxUntrusted {
			break
		}
		if len(name) > maxResourceName || !plainAmount.MatchString(text) {
			continue
		}
		if amount, err := resource.ParseQuantity(text); err == nil && amount.Sign() > 0 {
			some[corev1.ResourceName(name)] = amount
		}
	}
	return some
}

// Said returns amounts for [Wanted].
func Said(amounts Amounts) Untrusted {
	said := Untrusted{}
	for name, amount := range amounts {
		said[string(name)] = amount.String()
	}
	return said
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

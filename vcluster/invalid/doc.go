// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package invalid bounds the validation errors of an object, before an API server makes an answer of them: that takes time that
// is quadratic in their number, and memory that is many times the object's. Nothing interrupts it. It is for vcluster.
package invalid

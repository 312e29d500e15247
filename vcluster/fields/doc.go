// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package fields estimates what the fields of an object cost an API server that writes it, before it does so: nothing can
// interrupt that, and it is quadratic in several ways. It is for vcluster.
//
// A [Document] counts JSON while it is read, [OfYAML] and [OfProtobuf] count other documents, and [Of] counts an object.
// [Count.Check] compares the estimate with the limit field-steps.
package fields

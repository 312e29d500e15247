// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package isolation writes the host objects that isolate a space: its namespace,
// quota, limits, network policies and account, and the admission policies for all
// spaces' accounts. The host itself enforces them, so that they hold even if all
// of a space is taken over.
//
// Package platform (and later the operator) calls it; it takes no part in the data path.
package isolation

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package isolation writes the host objects that isolate a space: its namespace, quota, limits, network policies, and
// account, and the admission policies for all spaces' accounts. The host enforces them, so that they hold even if
// somebody takes over everything in a space.
//
// The platform calls it. It is not part of the data path.
package isolation

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package isolation says what tenants and their spaces are on the host. For now
// that is each space's walls: what holds even if all of a space is taken over,
// because the host itself enforces it.
//
// Commands (and later the operator) call it; it takes no part in the data path.
package isolation

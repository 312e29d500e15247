// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package tree keeps the tree of tenants, by the rules H1 to H4: who is above and below whom, whose rights hold where, and which
// trees are possible. It knows no API objects and no clients.
package tree

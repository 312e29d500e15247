// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pods syncs pods, and all that depends on them: the config maps and secrets that they refer to, tokens,
// service accounts, virtual nodes, events, and the network policies and disruption budgets that select them.
//
// Package translate/pod contains what a pod looks like on the host. This package decides when it is written, and
// reports its status.
package pods

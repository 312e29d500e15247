// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pods syncs pods, and what comes and goes with them: config maps and secrets that they refer to, tokens, service accounts,
// virtual nodes, events, and the network policies and disruption budgets that select them by labels.
//
// How a pod looks on the host is in package translate/pod; this package decides when, and reports what became of it.
package pods

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package classes syncs classes both ways: those of the host's that the admin lets spaces import, and those of tenants that Berth
// exports to the host. Pods and claims ask it which class on the host theirs is.
package classes

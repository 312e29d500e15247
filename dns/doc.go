// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dns is the cluster DNS of all spaces: one resolver in the process, by
// UDP and TCP, instead of a DNS server in each space (S6). Commands run it.
//
// Whose names are meant is told by the address that a query comes from: a pod
// belongs to one space, and that space's services are all the cluster that it
// can ask about. An address that is no pod's gets nothing. The answers are made
// of objects on the host, from watches that are there anyway, so that a query
// neither wakes a space nor waits for one.
//
// zone.go answers for the cluster's own domain, as the Kubernetes DNS
// specification has it, reverse.go for addresses; forward.go asks upstream for
// all other names, and filter.go says which names those are, and what of the
// answers a tenant may see. tenant.go bounds what a space can take.
//
// The package holds no record and authorizes nothing: an address is not a
// credential.
package dns

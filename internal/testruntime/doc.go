// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testruntime has what tests of streams need at both ends: a container
// runtime whose containers are processes of this machine, and clients of port
// forwarding. It knows no package of the product; only tests call it.
package testruntime

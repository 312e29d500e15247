// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package bootstrap writes the objects that each cluster begins with, and keeps the rights of a space's admins:
// upstream does the first in hooks, which end the process when they fail.
//
// It is called by vcluster, with a client that has all rights.
package bootstrap

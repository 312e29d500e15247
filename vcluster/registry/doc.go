// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package registry reads objects from a space's store past its API, for those that run with the API server: what
// controllers are needed for, what has a timer, what an account is to begin with.
//
// It is called by vcluster, by its controllers and by storage. It writes nothing.
package registry

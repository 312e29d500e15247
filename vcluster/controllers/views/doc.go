// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package views is what upstream's controllers see of a space's objects, where they must not see them as they are:
// nodes that are elsewhere, endpoints that are others', and lists that take too long because tenants choose how many
// objects and selectors there are.
//
// It is called by package controllers. It changes no object, and reads all of them by informers.
package views

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package credentials is what a control plane proves itself, and knows others, by: its CAs, the keys of its service-
// account tokens, and what authentication takes from these.
//
// It is called by vcluster. Files are made, read and replaced by package pki.
package credentials

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package certificate serves the API endpoint's certificate from files that somebody else renews, such as cert-manager. The
// platform uses it if it is given such files.
//
// It issues no certificates: those of names that the files don't cover come from the platform's own CA.
package certificate

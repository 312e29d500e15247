// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package definitions decides which CustomResourceDefinition of a name is in force in a space: its own, or one that the platform
// shares.
//
// The API server of a space applies it where it reads its definitions. [GetMatchingCRD] is a pure function. A [Set] is what one
// space may use of the definitions that the platform shares, by a CRDShare, or because Berth syncs objects of them with the host
// ([ForSync]). The package has no clients, and doesn't know how definitions are
// served.
package definitions

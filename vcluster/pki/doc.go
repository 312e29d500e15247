// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pki makes and keeps the keys of a control plane: a certificate
// authority, the key that signs service-account tokens, the server and client
// certificates the authority issues, and kubeconfigs that embed them.
//
// It is called by vcluster, for a space's own authority, and by those who serve
// its API on a TLS port. All keys are ECDSA P-256: an RSA key costs a good part
// of a control plane's start. Files are written atomically, with mode 0600, in
// a directory of mode 0700.
//
// It never verifies requests, and never replaces a file it cannot read.
package pki

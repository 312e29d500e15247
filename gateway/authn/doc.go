// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package authn proves who a client is, by credentials that the platform's admin has given out: client certificates of a CA, and lines of
// a token file and of a password file. It also knows clients by tokens of OpenID Connect providers, which upstream's authenticator verifies,
// and by tokens that the admin's webhook reviews, such as those of OpenStack Keystone. Each says which tenant the client is of (A1, A2, A4,
// A5).
//
// Credentials that a space has issued are not its concern: package shard/credentials checks them. Package authn stores nothing and
// authorizes nothing.
package authn

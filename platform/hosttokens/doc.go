// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hosttokens proves that requests are of ServiceAccounts of the host that own a space, by the host's TokenReview (O9).
//
// The platform's manager calls it for each request with a token of the host, before the space gets the request, or wakes. It keeps
// tokens only as long as their requests last, hands none on, and says nothing about what the ServiceAccount may do.
//
// Anybody can send any token. So only tokens that name an owner of the space, and that the host's keys have signed, are reviewed.
// If the platform can't read the host's keys, all tokens that name an owner are. How many tokens are checked and reviewed at once is
// limited: in total, for each space, and for each client of a space. Spaces without a token in review have a part of the total to
// themselves. The results of reviews are remembered for seconds.
package hosttokens

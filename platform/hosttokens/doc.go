// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hosttokens proves that requests are of ServiceAccounts of the host that own a space, by the host's TokenReview (O9).
//
// The platform's manager calls it for each request with a token of the host, before the space gets the request, or wakes. It keeps
// tokens only as long as their requests last, hands none on, and says nothing about what the ServiceAccount may do.
//
// Anybody can send any token. So the host is asked only about tokens that name an owner of the space. How many are asked about at
// once is limited, in all, and of each space and each client. The results are remembered for seconds.
package hosttokens

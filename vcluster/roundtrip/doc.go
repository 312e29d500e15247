// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package roundtrip has the pieces of which vcluster makes what sends HTTP requests: a function that is an
// [http.RoundTripper], a body that says when it has been read, and the end of a request that is not sent.
package roundtrip

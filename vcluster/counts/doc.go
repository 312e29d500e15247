// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package counts bounds what of an object takes an API server or a controller more than its size: numbers of elements that
// are compared with each other, or of objects that a controller makes of one, or looks at for each other object. It is for
// vcluster's admission, which asks before an object is validated.
package counts

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package expressions bounds what tenants' CEL expressions make an API server hold and compute. Such expressions are in
// CustomResourceDefinitions, admission policies, match conditions of webhooks, and selectors of devices. It is for vcluster.
//
// Upstream bounds neither how many expressions there are, of which each takes some 50 KiB once it is compiled, nor the size of
// the regular expressions in them: a call costs as if a regular expression were no larger compiled than it is written. Nor does
// it bound what a call makes, such as replace, or count what a value holds that holds another one several times. Many calls cost one
// however long the text or list is that they handle. The table of boundedCalls has the functions that are bounded and counted here.
package expressions

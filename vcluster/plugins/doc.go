// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package plugins bounds upstream's admission plugins, of which some run what tenants write: policies, webhooks and
// match conditions, roles, limit ranges, and definitions of custom resources. [Chain] is all of them, behind what
// rejects an object that takes too much.
//
// It is called by vcluster. The plugins that are Berth's own are in package admission.
package plugins

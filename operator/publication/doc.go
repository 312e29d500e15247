// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package publication reconciles Publications. One controller reads the objects of the host that a Publication selects, and
// writes a PublishedObject for each. Another one sets spec.publications of the Spaces of tenants.
//
// Platforms copy PublishedObjects to their spaces. This package never talks to a space.
package publication

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package published has the PublishedObjects of the host as a platform needs them: it watches them, and renders the copies of a
// space.
//
// The operator writes the PublishedObjects. A platform makes one [Store], calls [Store.Render] for each of its spaces, and
// sets the result in the space's access.Source. When the store reports that publications of the space changed, it does so
// again. That works for sleeping spaces too, and doesn't wake them. The package never talks to a space, and
// doesn't decide which publications a space has.
package published

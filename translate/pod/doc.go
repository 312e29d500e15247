// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package pod is the translation of pods, from the check of what a tenant wrote to
// what the tenant reads of the host's pod: [Check] and [CheckSettings] say what is
// refused, [ToHost] makes the host's pod, [PullStatus] the status in the space, and
// [Scrub] and [Event] pass on messages without what they say of the host.
//
// The syncer calls this package, and so does the admission of a space, for the
// checks. As in package translate, all functions are pure. Names, labels and
// selectors are that package's, and so is where pods may run.
package pod

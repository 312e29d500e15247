// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package overlay lays the CustomResourceDefinitions that the platform shares over those in the store of a space. It is for vcluster.
//
// Whoever reads definitions of a space's API server, a client or one of upstream's controllers, gets those that are in force, by
// package definitions. Shared definitions are in no store. Custom resources of a shared definition are stored apart from those of a
// definition of the space with the same name, so that both come back unchanged when the other definition is in force for a while.
//
// A change of what is in force is one small write to the store of an awake space, the marker. Its revision is that of the change:
// watches, and pages of lists, that are older expire.
package overlay

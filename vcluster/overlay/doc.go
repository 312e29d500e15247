// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package overlay lays the CustomResourceDefinitions that the platform shares over those in the store of a space. It is for vcluster.
//
// Whoever reads definitions of a space's API server, a client or one of upstream's controllers, gets those that are in force, by
// package definitions. Shared definitions are in no store. Custom resources of a shared definition are stored apart from those of a
// definition of the space with the same name, so that both come back unchanged when the other definition is in force for a while.
//
// Berth used to copy the definitions of kinds that it syncs into spaces. When a space starts that has such a copy, the objects are moved to
// where those of shared definitions are stored.
//
// A change of what is in force is one small write to the store of an awake space, the marker. Its revision is that of the change:
// watches, and pages of lists, that are older expire. A space that wakes writes it only if another set is in force than when it slept.
//
// The owner of a definition is the platform, if it is shared, or else the space. A name switches when its definition gets another owner,
// because the set or the policy changes, or because the space creates or deletes its own. The switch count is the number of switches since
// the space started. A storage of custom resources is bound to the owner of its definition and to the switch by which that came into
// force. It refuses requests that began before this switch, and all after the next. The first list or watch after a switch writes the
// marker once more: the revision from which on the owner's objects are served.
package overlay

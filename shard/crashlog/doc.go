// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package crashlog keeps on disk which spaces of a shard are active, so that after
// a process died, say because memory ran out, the next one knows which spaces may
// have killed it: the suspects. It breaks crash loops (T8): without it the next
// process starts the same space again, and dies again.
//
// A space has a file while it is active or suspected. The file is written durably
// when the space starts, and removed when it stops cleanly; its modification time
// is when the space last did something, to about a second. A request costs no
// write.
//
// A process that finds files of active spaces knows that the one before it ended
// uncleanly, and holds back a few of them:
//
//   - After one such end, the most suspicious space: it starts last. It is on trial
//     for a while after its start: no other suspect is started meanwhile.
//   - If the process ends while it is on trial, it may still be another's fault. The
//     space is held back for longer than the process has lived. If the process ends
//     all the same, the space is cleared. Else it is on trial again, and if the
//     process ends now, it is the culprit.
//   - If nobody was on trial, more are held back that way: one, then two, then four,
//     at most half of all. They are on trial in eight groups, one after the other, so
//     that nobody waits longer than for eight trials. If the process ends during one,
//     the culprit is in that group, which is divided in the same way.
//     Those that were not active at an unclean end are cleared, so that few such ends
//     find the one among many.
//   - A culprit is held back for ten seconds, and twice as long each time that it
//     ends the process again. All others are cleared.
//
// The most suspicious spaces are those that held most memory, then those that were
// busy, then those that started last. Watches of which nothing waits count for
// nothing. How much memory is accounted to spaces that hold much is in one file
// for all, written when it changes, not more often than [Log.Weigh] is called.
//
// All others start as usual. A space that survives its trial runs as usual, too,
// and is cleared after ten minutes.
//
// Package shard calls it. It starts and stops nothing.
package crashlog

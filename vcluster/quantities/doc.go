// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package quantities refuses quantities that an API server cannot handle in time: upstream writes 1e-5000000 out with all its
// digits to parse it, which takes 0.3 s and nothing interrupts, and larger exponents take minutes and gigabytes. It is for vcluster.
//
// The same text is fine as a label or as a variable's value, so what matters is the type of the field that it is in. [Suspect] finds
// out cheaply that a document has no such text, as nearly all have not. [CheckDocument] and [Type.CheckPatch] look into the others.
// [Serializer] does so for what a server decodes.
package quantities

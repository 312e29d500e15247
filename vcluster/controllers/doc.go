// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package controllers runs upstream's controllers of one control plane, each only while there is something for it to
// do: [Start] follows what is written to the store. It also tells what a control plane that sleeps has to do later
// ([NextTimer]).
//
// It is called by vcluster. A controller reads objects through package views, and its requests wait for their turn. What
// controllers do is upstream's.
package controllers

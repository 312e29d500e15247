// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package host is the embedded host cluster of `berth up`: a control plane of
// package vcluster, upstream's scheduler, nodes simulated by kwok, and
// simulated dynamic volumes, all in this process and without a port of their
// own.
//
// It is called by platform when no cluster is given, and by tests on machines
// without containers. Nothing runs on its nodes: a pod that is scheduled is
// said to run, and one that may end (restartPolicy other than Always) ends well
// after a second, or after the time in its annotation
// pod-complete.stage.kwok.x-k8s.io/delay. Volumes hold no data, and logs and
// exec have nothing to answer them.
//
// It never looks at spaces, and whoever prints it to a user says that its nodes
// are simulated.
package host

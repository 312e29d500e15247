// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build suite

package main

// `run` compiles the suite's tests: this has go.mod hold what they need.
import _ "k8s.io/kubernetes/test/e2e"

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package e2e

import "syscall"

func dieWithParent() *syscall.SysProcAttr { return nil }

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import "syscall"

// dieWithParent ends a process even if the tests are ended by a timeout, which
// runs no clean-up.
func dieWithParent() *syscall.SysProcAttr { return &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} }

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"

	"github.com/moby/sys/capability"
)

// machine is what an engine needs of a machine. Without it, an engine or its first container ends with an error that
// only those understand who know what it tried.
type machine struct {
	user     int
	cgroups  string // where the control groups are mounted
	has      func(capability.Cap) bool
	separate func() error // starts a process in namespaces of its own
}

func thisMachine(ctx context.Context) (*machine, error) {
	own, err := capability.NewPid2(0)
	if err == nil {
		err = own.Load()
	}
	if err != nil {
		return nil, fmt.Errorf("read own capabilities: %w", err)
	}
	return &machine{
		user: os.Geteuid(), cgroups: "/sys/fs/cgroup",
		has: func(c capability.Cap) bool { return own.Get(capability.EFFECTIVE, c) },
		separate: func() error {
			cmd := exec.CommandContext(ctx, "true")
			cmd.SysProcAttr = &syscall.SysProcAttr{
				Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID | syscall.CLONE_NEWNET | syscall.CLONE_NEWIPC | syscall.CLONE_NEWUTS,
			}
			return cmd.Run()
		},
	}, nil
}

// canRunContainers says what is missing.
func (m *machine) canRunContainers() error {
	if m.user != 0 {
		return errors.New("this user is not root")
	}
	for _, c := range []capability.Cap{capability.CAP_SYS_ADMIN, capability.CAP_NET_ADMIN, capability.CAP_SYS_CHROOT, capability.CAP_MKNOD} {
		if !m.has(c) {
			return fmt.Errorf("root lacks the capability %s", c)
		}
	}
	if err := m.canLimit(); err != nil {
		return err
	}
	if err := m.separate(); err != nil {
		return fmt.Errorf("no process can be given namespaces of its own: %w", err)
	}
	return nil
}

// canLimit makes and removes a control group, in the new hierarchy or the old one.
func (m *machine) canLimit() error {
	parent := m.cgroups
	if _, err := os.Stat(filepath.Join(parent, "cgroup.controllers")); err != nil {
		parent = filepath.Join(parent, "memory")
		if _, err := os.Stat(filepath.Join(parent, "tasks")); err != nil {
			return fmt.Errorf("%s has no control groups", m.cgroups)
		}
	}
	group, err := os.MkdirTemp(parent, "berth-kind-")
	if err == nil {
		err = os.Remove(group)
	}
	if err != nil {
		return fmt.Errorf("control groups can't be written: %w", err)
	}
	return nil
}

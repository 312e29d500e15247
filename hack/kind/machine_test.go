// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/moby/sys/capability"
)

func TestAMachineThatCannotRunContainersSaysWhatItLacks(t *testing.T) {
	for reason, test := range map[string]struct {
		change func(*machine)
		want   string
	}{
		"all is there": {func(*machine) {}, ""},
		"a user":       {func(m *machine) { m.user = 1000 }, "not root"},
		"a container's root": {
			func(m *machine) { m.has = func(c capability.Cap) bool { return c != capability.CAP_NET_ADMIN } }, "net_admin",
		},
		"no control groups": {func(m *machine) { m.cgroups = t.TempDir() }, "no control groups"},
		"no namespaces":     {func(m *machine) { m.separate = func() error { return errors.New("forbidden") } }, "namespaces of its own: forbidden"},
	} {
		t.Run(reason, func(t *testing.T) {
			groups := t.TempDir()
			if err := os.WriteFile(filepath.Join(groups, "cgroup.controllers"), nil, 0o600); err != nil {
				t.Fatal(err)
			}
			m := &machine{cgroups: groups, has: func(capability.Cap) bool { return true }, separate: func() error { return nil }}
			test.change(m)
			err := m.canRunContainers()
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("it says %v, want %q", err, test.want)
			}
		})
	}
}

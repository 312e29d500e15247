// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// dataDir holds what `berth up` leaves: kubeconfigs, and other things.
func dataDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{
		"demo.kubeconfig": "kubeconfig of demo\n", "host.kubeconfig": "kubeconfig of host\n", "team-a.kubeconfig": "kubeconfig of team-a\n",
		"berth.log": "log", "lock": "",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for _, sub := range []string{"spaces", "dir.kubeconfig"} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestKubeconfigPrintsTheFileAndNothingElse(t *testing.T) {
	dir := dataDir(t)
	for _, name := range []string{"demo", "host", "team-a"} {
		out, err := run(t, "kubeconfig", name, "--data-dir", dir)
		if err != nil || out != "kubeconfig of "+name+"\n" {
			t.Errorf("%s: got %q (%v)", name, out, err)
		}
	}
}

func TestKubeconfigOfAnUnknownSpaceSaysWhatThereIs(t *testing.T) {
	full, empty := dataDir(t), t.TempDir()
	tests := map[string]struct {
		reason, space, dir, says string
	}{
		"unknown":            {"a slip of the finger", "dmeo", full, "found: demo, host, team-a"},
		"empty":              {"nothing was started here", "demo", empty, "to create a space, run: berth up"},
		"no such directory":  {"nor here", "demo", filepath.Join(empty, "none"), "to create a space, run: berth up"},
		"a directory":        {"not a file", "dir", full, "found: demo"},
		"a path":             {"a name is not a path", "../" + filepath.Base(full) + "/demo", full, "found: demo"},
		"the file's name":    {"the space's is meant", "demo.kubeconfig", full, "found: demo"},
		"an empty name":      {"no space", "", full, "found: demo"},
		"a file is no dir":   {"told as it is", "demo", filepath.Join(full, "lock"), "not a directory"},
		"another file of it": {"only kubeconfigs are printed", "berth.log", full, "found: demo"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			out, err := run(t, "kubeconfig", test.space, "--data-dir", test.dir)
			if err == nil || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s: got %v, want %q", test.reason, err, test.says)
			}
			if out != "" {
				t.Errorf("%s: printed %q", test.reason, out)
			}
		})
	}
}

func TestSpacesAreCompleted(t *testing.T) {
	dir := dataDir(t)
	tests := map[string]struct {
		args []string
		want []string
	}{
		"the first argument":  {[]string{"kubeconfig", "--data-dir", dir, ""}, []string{"demo", "host", "team-a"}},
		"there is no second":  {[]string{"kubeconfig", "--data-dir", dir, "demo", ""}, nil},
		"output formats":      {[]string{"version", "-o", ""}, []string{"json", "yaml"}},
		"nothing in no place": {[]string{"kubeconfig", "--data-dir", filepath.Join(dir, "none"), ""}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			out, err := run(t, append([]string{"__complete"}, test.args...)...)
			if err != nil {
				t.Fatal(err)
			}
			lines := strings.Split(strings.TrimSpace(out), "\n")
			if directive := lines[len(lines)-1]; directive != ":4" { // no files
				t.Errorf("directive is %q", directive)
			}
			if got := lines[:len(lines)-1]; strings.Join(got, " ") != strings.Join(test.want, " ") {
				t.Errorf("completed %q, want %q", got, test.want)
			}
		})
	}
}

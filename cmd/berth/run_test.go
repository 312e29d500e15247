// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"strings"
	"testing"
)

// run runs berth with args and returns what it printed to its output.
func run(t *testing.T, args ...string) (out string, err error) {
	t.Helper()
	var stdout, stderr bytes.Buffer
	root := newRoot("berth")
	root.SetArgs(args)
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	err = root.ExecuteContext(t.Context())
	if stderr.Len() > 0 && err != nil {
		t.Errorf("an error is printed by main alone, but this was: %s", stderr.String())
	}
	return stdout.String(), err
}

// What cannot be run is refused in one line, before anything is touched (X3).
func TestCommandLinesThatMeanNothingAreRefused(t *testing.T) {
	tests := map[string]struct {
		args []string
		says string
	}{
		"a command that is not there": {[]string{"dwon"}, "dwon"},
		"a flag that is not there":    {[]string{"version", "--colour"}, "--colour"},
		"a space too many":            {[]string{"kubeconfig", "a", "b"}, "accepts 1 arg"},
		"no space":                    {[]string{"kubeconfig"}, "accepts 1 arg"},
		"a reserved name":             {[]string{"up", "--space", "system"}, `--space: space name "system" is reserved`},
		"a name that is no label":     {[]string{"up", "--space", "../x"}, "--space: "},
		"serving what is reserved":    {[]string{"serve", "--space", "host"}, `--space: space name "host" is reserved`},
		"a port of no scheme":         {[]string{"serve", "--advertise", "berth:7443"}, "--advertise=berth:7443: must be https://HOST or https://HOST:PORT"},
		"a path below the port":       {[]string{"serve", "--advertise", "https://berth/x"}, "--advertise=https://berth/x: must be https://HOST or https://HOST:PORT"},
		"a plain port":                {[]string{"serve", "--advertise", "http://berth"}, "--advertise=http://berth: must be https://HOST or https://HOST:PORT"},
		"a user in the URL":           {[]string{"serve", "--advertise", "https://me@berth"}, "--advertise=https://me@berth: must be https://HOST or https://HOST:PORT"},
		"secrets in no namespace":     {[]string{"serve", "--kubeconfig-secrets", "a/b"}, "--kubeconfig-secrets=a/b: must be the name of a namespace: "},
		"a log of no format":          {[]string{"serve", "--log-format", "xml"}, "--log-format=xml: must be text or json"},
		"a host that is nowhere":      {[]string{"serve"}, "--host-kubeconfig: name a cluster, as this is no pod of one: "},
		"no file to check":            {[]string{"check"}, "nothing to check"},
		"an output that is not there": {[]string{"version", "-o", "xml"}, "--output=xml: must be json or yaml"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBERNETES_SERVICE_HOST", "") // else these tests might run in a pod
			args := test.args
			if args[0] == "up" || args[0] == "serve" {
				args = append(args, "--data-dir", t.TempDir())
			}
			out, err := run(t, args...)
			if err == nil || !strings.Contains(err.Error(), test.says) || strings.Contains(err.Error(), "\n") {
				t.Errorf("got %v, want one line that says %q", err, test.says)
			}
			if out != "" {
				t.Errorf("printed %q", out)
			}
		})
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// envLogs is the directory for what a release leaves before it is removed: the
// logs that are collected afterwards are without it.
const envLogs = "E2E_LOGS"

// record keeps how pods of the host were, for who looks into a failure.
func record(ctx context.Context, t *testing.T, host *cluster, namespaces ...string) {
	t.Helper()
	if err := suite().build(); err != nil {
		t.Error(err)
		return
	}
	for _, namespace := range namespaces {
		for _, args := range [][]string{
			{"get", "pods", "-o", "wide"}, {"get", "events", "--sort-by=.lastTimestamp"}, {"describe", "pods"},
			{"logs", "-l", "app.kubernetes.io/name=berth", "--tail=-1", "--prefix"},
		} {
			out, err := exec.CommandContext(ctx, suite().command("kubectl"), append(args, "--kubeconfig", host.kubeconfig, "--namespace", namespace)...).CombinedOutput()
			if err != nil {
				out = append(out, err.Error()...)
			}
			file := filepath.Join(os.Getenv(envLogs), namespace, strings.Join(args[:2], "-")+".txt")
			switch {
			case strings.HasPrefix(string(out), "No resources found"):
			case os.Getenv(envLogs) == "" && t.Failed():
				t.Logf("kubectl %s in %s:\n%s", strings.Join(args, " "), namespace, out)
			case os.Getenv(envLogs) != "":
				if err := os.MkdirAll(filepath.Dir(file), 0o750); err != nil {
					t.Log(err)
				}
				if err := os.WriteFile(file, out, 0o600); err != nil {
					t.Log(err)
				}
			}
		}
	}
	if t.Failed() && os.Getenv(envLogs) != "" {
		t.Logf("how the pods of %s were is in %s", strings.Join(namespaces, ", "), os.Getenv(envLogs))
	}
}

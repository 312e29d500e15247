// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// forwarding is a kubectl port-forward that runs, until the test ends or what it
// leads to does.
type forwarding struct {
	// local are its addresses on this machine, as many and in the order in which
	// ports were asked for.
	local          []string
	stdout, stderr buffer
	done           chan struct{}
}

// forward forwards free ports of this machine to those of args, such as :80.
func forward(t *testing.T, c *cluster, args ...string) *forwarding {
	t.Helper()
	if err := suite().build(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, suite().command("kubectl"), append([]string{"port-forward", "--address=127.0.0.1"}, args...)...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+c.kubeconfig, "HOME="+suite().dir, "KUBECACHEDIR="+filepath.Dir(c.kubeconfig))
	f := &forwarding{done: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = &f.stdout, &f.stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		defer close(f.done)
		_ = cmd.Wait() // why is in stderr
	}()
	t.Cleanup(func() { cancel(); <-f.done })
	ports := 0
	for _, arg := range args {
		if strings.HasPrefix(arg, ":") {
			ports++
		}
	}
	eventually(t, func() error {
		found := regexp.MustCompile(`(?m)^Forwarding from (127\.0\.0\.1:\d+) -> \d+$`).FindAllStringSubmatch(f.stdout.String(), -1)
		if len(found) == ports {
			for _, line := range found {
				f.local = append(f.local, line[1])
			}
			return nil
		}
		select {
		case <-f.done:
			t.Fatalf("kubectl port-forward %s ended: %s%s", strings.Join(args, " "), f.stdout.String(), f.stderr.String())
		default:
		}
		return fmt.Errorf("kubectl port-forward %s says %q%q", strings.Join(args, " "), f.stdout.String(), f.stderr.String())
	})
	return f
}

// reads is what a GET of one of its ports returns.
func (f *forwarding) reads(t *testing.T, port int) string {
	t.Helper()
	r := must(http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+f.local[port]+"/", http.NoBody))(t)
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	return string(must(io.ReadAll(resp.Body))(t))
}

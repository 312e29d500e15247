// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/vcluster/pki"
)

const hostTask = "the host"

// withHost runs f with the kubeconfig of a host cluster in a process of its own, unless the settings name one.
func withHost(ctx context.Context, s settings, f func(settings) error) (err error) {
	if s.Host != "" {
		// The children's working directories are others.
		if s.Host, err = filepath.Abs(s.Host); err != nil {
			return fmt.Errorf("-host-kubeconfig: %w", err)
		}
		return f(s)
	}
	self, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	dir, err := os.MkdirTemp("", "berth-bench-host-")
	if err != nil {
		return fmt.Errorf("make a place for data: %w", err)
	}
	defer os.RemoveAll(dir)
	cmd := exec.CommandContext(ctx, self, s.args()...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), childVariable+"="+hostTask)
	cmd.Stderr = os.Stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = childStopTime
	out, err := cmd.StdoutPipe()
	if err != nil {
		return fmt.Errorf("start the host: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start the host: %w", err)
	}
	defer func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait() // it was told to end
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return fmt.Errorf("start the host: it ended early: %w", err)
	}
	s.Host = strings.TrimSpace(line)
	return f(s)
}

// serveHost is the host's process: it prints the path of its kubeconfig when it serves, and ends with ctx.
func serveHost(ctx context.Context, dir string, out io.Writer) error {
	port, err := openPort(ctx, dir)
	if err != nil {
		return err
	}
	cluster, err := host.Start(ctx, host.Options{
		Dir: filepath.Join(dir, "host"), ServingCA: port.ca.PEM(), Logger: klog.Background(),
		Endpoint: port.url(gateway.SystemSpace),
	})
	if err != nil {
		return err
	}
	stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), childStopTime)
	defer cancel()
	defer func() { _ = cluster.Stop(stopping) }() // its data is thrown away
	server, err := port.serve(func(string) http.Handler { return cluster.Handler() })
	if err != nil {
		return err
	}
	defer server.Stop(stopping)
	config, err := cluster.ClientKubeconfig("bench", []string{"system:masters"})
	if err != nil {
		return err
	}
	path := filepath.Join(dir, "kubeconfig")
	if err := pki.WriteFile(path, config); err != nil {
		return err
	}
	fmt.Fprintln(out, path)
	select {
	case <-ctx.Done():
		return nil
	case <-server.Done():
		return server.Err()
	case <-cluster.Done():
		return cluster.Err()
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// docker is the engine that runs the nodes: the machine's own, or one that this program starts beside it, with
// directories and a socket of its own, and stops with the last cluster.
type docker struct {
	// dir is where everything is cached, the own engine's directories too.
	dir string
}

func newDocker(ctx context.Context) (*docker, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return nil, fmt.Errorf("find the cache directory: %w", err)
	}
	d := &docker{dir: filepath.Join(cache, "berth-kind")}
	if answers(ctx) {
		return d, nil
	}
	// Where kind and the docker command look for it, too.
	return d, os.Setenv("DOCKER_HOST", "unix://"+filepath.Join(d.dir, "docker.sock"))
}

// engine starts one of our own unless one answers.
func (d *docker) engine(ctx context.Context) error {
	if answers(ctx) {
		return nil
	}
	m, err := thisMachine(ctx)
	if err != nil {
		return err
	}
	if err := m.canRunContainers(); err != nil {
		return fmt.Errorf("no Docker engine answers, and this machine cannot run one: %w; "+
			"set DOCKER_HOST to an engine, or use a virtual machine where you are root", err)
	}
	if err := stage("system packages", func() error { return install(ctx, enginePackages) }); err != nil {
		return err
	}
	return stage("docker", func() error { return d.start(ctx) })
}

func answers(ctx context.Context) bool {
	return exec.CommandContext(ctx, "docker", "info").Run() == nil
}

// install adds packages of Debian's whose commands the machine lacks.
func install(ctx context.Context, packages map[string][]string) error {
	missing := map[string]bool{}
	for program, debian := range packages {
		if _, err := exec.LookPath(program); err != nil {
			for _, name := range debian {
				missing[name] = true
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	names := slices.Sorted(maps.Keys(missing))
	if _, err := exec.LookPath("apt-get"); err != nil || os.Geteuid() != 0 {
		return fmt.Errorf("install these first, as root: apt-get install %s", strings.Join(names, " "))
	}
	// No engine is to start by itself: ours would get in its way.
	const policy = "/usr/sbin/policy-rc.d"
	if _, err := os.Stat(policy); os.IsNotExist(err) {
		if err := os.WriteFile(policy, []byte("#!/bin/sh\nexit 101\n"), 0o755); err != nil {
			return fmt.Errorf("keep packages from starting services: %w", err)
		}
		defer func() { _ = os.Remove(policy) }()
	}
	_ = os.Setenv("DEBIAN_FRONTEND", "noninteractive") // the name is a good one
	if err := quietly(exec.CommandContext(ctx, "apt-get", "update", "-qq")); err != nil {
		return err
	}
	args := append([]string{"install", "-qq", "-y", "--no-install-recommends"}, names...)
	return quietly(exec.CommandContext(ctx, "apt-get", args...))
}

func (d *docker) start(ctx context.Context) error {
	front := filepath.Join(d.dir, "runcfront")
	if err := quietly(exec.CommandContext(ctx, "go", "build", "-o", front, "./runcfront")); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(d.dir, "dockerd.log"))
	if err != nil {
		return fmt.Errorf("start docker: %w", err)
	}
	defer func() { _ = log.Close() }()
	// It outlives this program. It leaves the machine's own network as it is: no packet filter rules, no forwarding, no
	// bridge of its own. Nodes reach each other, and the machine reaches the API by a proxy.
	cmd := exec.Command("dockerd", "--host", os.Getenv("DOCKER_HOST"), "--pidfile", d.pidFile(),
		"--data-root", filepath.Join(d.dir, "docker"), "--exec-root", filepath.Join(d.dir, "docker-exec"),
		"--bridge=none", "--iptables=false", "--ip6tables=false", "--ip-forward=false", "--ip-masq=false",
		"--add-runtime", "front="+front, "--default-runtime", "front")
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("start docker: %w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	return poll(ctx, "docker", func() error {
		select {
		case err := <-ended:
			cancel()
			return fmt.Errorf("it ended: %w\n%s", err, lastLines(log.Name()))
		default:
		}
		if !answers(ctx) {
			return fmt.Errorf("it does not answer, see %s", log.Name())
		}
		return nil
	})
}

func (d *docker) pidFile() string { return filepath.Join(d.dir, "docker.pid") }

// lastLines is what an engine said before it ended.
func lastLines(file string) string {
	content, err := os.ReadFile(file)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(content)), "\n")
	return strings.Join(lines[max(0, len(lines)-10):], "\n")
}

// stop ends an engine of our own when it runs no more containers.
func (d *docker) stop(ctx context.Context) error {
	if !d.isOurs() {
		return nil
	}
	if answers(ctx) {
		containers, err := output(exec.CommandContext(ctx, "docker", "ps", "-aq"))
		if err != nil || containers != "" {
			return err
		}
		// kind leaves its network, whose bridge would outlive the engine.
		if err := quietly(exec.CommandContext(ctx, "docker", "network", "prune", "--force")); err != nil {
			return err
		}
	}
	pid, err := d.pid()
	if pid == 0 {
		return err
	}
	if err := syscall.Kill(pid, syscall.SIGTERM); err != nil {
		return fmt.Errorf("stop docker: %w", err)
	}
	return poll(ctx, "docker's end", func() error {
		if _, err := os.Stat(d.pidFile()); !os.IsNotExist(err) {
			return fmt.Errorf("process %d is there", pid)
		}
		return nil
	})
}

// pid is the process of an engine of our own, 0 if none runs.
func (d *docker) pid() (int, error) {
	content, err := os.ReadFile(d.pidFile())
	if os.IsNotExist(err) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("find docker: %w", err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(content)))
	if err != nil {
		return 0, fmt.Errorf("find docker: %w", err)
	}
	// A file of before the machine was restarted may name anybody.
	if name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid)); err != nil || string(name) != "dockerd\n" {
		return 0, nil // there is no such process
	}
	return pid, nil
}

// isOurs says whether DOCKER_HOST leads to an engine that this program started.
func (d *docker) isOurs() bool {
	return os.Getenv("DOCKER_HOST") == "unix://"+filepath.Join(d.dir, "docker.sock")
}

// quietly runs a command, and returns what it said only if it fails.
func quietly(cmd *exec.Cmd) error {
	_, err := output(cmd)
	return err
}

func output(cmd *exec.Cmd) (string, error) {
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", strings.Join(cmd.Args, " "), err, out, stderr.String())
	}
	return strings.TrimSpace(string(out)), nil
}

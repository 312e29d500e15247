// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// builder makes a node image, stage by stage.
type builder struct {
	// bin holds what was compiled, images what pods will run, root the node's files.
	bin, images, root string
	// kubernetes is the directory of the module that pins Kubernetes.
	kubernetes string
	version    string
}

func (b *builder) program(name string) string { return filepath.Join(b.bin, name) }

// compile builds the node's programs. They are built as Berth itself is, with the same flags and versions: what both
// link is compiled once.
func (b *builder) compile(ctx context.Context) error {
	version, err := output(exec.CommandContext(ctx, "go", "list", "-C", b.kubernetes, "-m", "-f", "{{.Version}}", "k8s.io/kubernetes"))
	if err != nil {
		return err
	}
	b.version = version
	minor := strings.Split(version, ".")[1]
	const stamp = "k8s.io/component-base/version"
	flags := fmt.Sprintf("-s -w -X %[1]s.gitMajor=1 -X %[1]s.gitMinor=%[2]s -X %[1]s.gitVersion=%[3]s -X %[1]s.gitTreeState=clean",
		stamp, minor, version)
	for _, name := range slices.Sorted(maps.Keys(components)) {
		dir, source := ".", components[name]
		if strings.HasPrefix(source, "k8s.io/kubernetes/") || strings.HasPrefix(source, "go.etcd.io/etcd/") {
			dir = b.kubernetes
		}
		if err := quietly(exec.CommandContext(ctx, "go", "build", "-C", dir, "-ldflags", flags, "-o", b.program(name), source)); err != nil {
			return err
		}
	}
	// A pod's first process is a few lines of C: in Go, it would be a deadlock to do nothing.
	source, err := output(exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}/build/pause/linux/pause.c", "k8s.io/kubernetes"))
	if err != nil {
		return err
	}
	return quietly(exec.CommandContext(ctx, "gcc", "-Os", "-s", "-static", "-DVERSION=v"+pauseVersion, "-o", b.program("pause"), source))
}

// debootstrap fills a directory with Debian packages, of this machine's own release and mirror.
func debootstrap(ctx context.Context, dir string, packages []string) error {
	targets, err := output(exec.CommandContext(ctx, "apt-get", "indextargets", "--format", "$(CODENAME) $(SITE)",
		"Created-By: Packages", "Origin: Debian"))
	if err != nil {
		return err
	}
	var codename, site string
	for fields := range linesOf(targets) {
		if len(fields) == 2 && !strings.Contains(fields[0], "-") {
			codename, site = fields[0], fields[1]
		}
	}
	if site == "" {
		return errors.New("this machine's apt knows no Debian packages: use a Debian, or for nodes set KIND_NODE_IMAGE")
	}
	cmd := exec.CommandContext(ctx, "debootstrap", "--variant=minbase", "--include="+strings.Join(packages, ","), codename, dir, site)
	// What it mounts goes with it, however it ends.
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	return quietly(cmd)
}

// inRoot runs a program of the node's.
func (b *builder) inRoot(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "chroot", append([]string{b.root}, args...)...)
}

// assembleImages writes the images of the cluster's own pods, under the names that kubeadm asks for.
func (b *builder) assembleImages(ctx context.Context) error {
	list, err := output(exec.CommandContext(ctx, b.program("kubeadm"), "config", "images", "list", "--kubernetes-version", b.version))
	if err != nil {
		return err
	}
	// The filter's command line tool is not a Go module.
	nft, err := parseLibraries(b.root, b.inRoot(ctx, "ldd", "/usr/sbin/nft"))
	if err != nil {
		return err
	}
	nft = append(nft, imageFile{b.root + "/usr/sbin/nft", "/usr/sbin/nft"})
	tags := map[string]string{"agent": agentImage, "metrics-server": metricsImage}
	for fields := range linesOf(list) {
		repository, _, _ := strings.Cut(fields[0], ":")
		tags[filepath.Base(repository)] = fields[0]
		if name := filepath.Base(repository); name == "pause" {
			tags[name] = repository + ":" + pauseVersion
		}
	}
	for name, tag := range tags {
		entrypoint := "/usr/local/bin/" + name
		switch name {
		case "coredns", "pause": // what manifests and runtimes expect
			entrypoint = "/" + name
		}
		var more []imageFile
		if name == "agent" || name == "kube-proxy" {
			more = nft
		}
		if err := writeImage(filepath.Join(b.images, name+".tar"), tag, entrypoint, libraries, b.program(name), more...); err != nil {
			return fmt.Errorf("image %s: %w", tag, err)
		}
	}
	return nil
}

// importTo makes root a docker image, without what a node has no use for.
func (b *builder) importTo(ctx context.Context, image string) error {
	var exclude []string
	for _, dir := range []string{"var/cache/apt", "var/lib/apt/lists", "usr/share/doc", "usr/share/locale", "usr/share/man"} {
		exclude = append(exclude, "--exclude=./"+dir+"/*")
	}
	archive := exec.CommandContext(ctx, "tar", append(exclude, "-C", b.root, "-cf", "-", ".")...)
	archive.Stderr = os.Stderr
	pipe, err := archive.StdoutPipe()
	if err != nil {
		return fmt.Errorf("import node image: %w", err)
	}
	if err := archive.Start(); err != nil {
		return fmt.Errorf("import node image: %w", err)
	}
	docker := exec.CommandContext(ctx, "docker", "import", "-c", "ENV container=docker",
		"-c", `ENTRYPOINT [ "/usr/local/bin/entrypoint", "/sbin/init" ]`, "-", image)
	docker.Stdin = pipe
	if err := quietly(docker); err != nil {
		return err
	}
	if err := archive.Wait(); err != nil {
		return fmt.Errorf("import node image: %w", err)
	}
	return nil
}

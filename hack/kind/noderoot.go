// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// configure does to root what kind's own recipe does to its base image.
func (b *builder) configure(ctx context.Context) error {
	source, err := output(exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}", "sigs.k8s.io/kind"))
	if err != nil {
		return err
	}
	script := fmt.Sprintf(configureScript, b.root, filepath.Join(source, "images/base/files"), b.bin, b.version)
	if err := quietly(exec.CommandContext(ctx, "bash", "-euc", script)); err != nil {
		return err
	}
	if err := b.containerSpec(ctx); err != nil {
		return err
	}
	for name, files := range map[string][]string{
		"default-cni.yaml":     {"agent.yaml"},
		"default-storage.yaml": {"storage.yaml", "metrics-server.yaml"},
	} {
		var all []byte
		for _, file := range files {
			content, err := os.ReadFile(filepath.Join("manifests", file))
			if err != nil {
				return fmt.Errorf("read manifest: %w", err)
			}
			all = append(all, content...)
		}
		if err := os.WriteFile(filepath.Join(b.root, "kind/manifests", name), all, 0o600); err != nil {
			return fmt.Errorf("write manifest: %w", err)
		}
	}
	return nil
}

// %[1]s is root, %[2]s kind's files, %[3]s the compiled programs, %[4]s the version of Kubernetes.
const configureScript = `
cd '%[1]s'
cp -r --no-preserve=mode '%[2]s'/. .
chmod 755 usr/local/bin/* kind kind/bin kind/bin/*
mkdir -p opt/cni/bin etc/cni/net.d etc/kubernetes/manifests kind/manifests usr/local/sbin
units=lib/systemd/system
rm -rf $units/sysinit.target.wants/systemd-tmpfiles-setup.service $units/{multi-user,local-fs,basic}.target.wants/* \
	$units/sockets.target.wants/*{udev,initctl}* etc/systemd/system/*.wants/*
echo ReadKMsg=no >>etc/systemd/journald.conf
# Where kind looks for what Debian keeps elsewhere.
ln -sf /usr/bin/containerd /usr/bin/ctr /usr/bin/containerd-shim-runc-v2 usr/local/bin/
ln -sf /usr/sbin/runc usr/local/sbin/runc
ln -sf /usr/lib/cni/{host-local,loopback,ptp,portmap} opt/cni/bin/
cp '%[3]s'/{kubeadm,kubelet,kubectl} usr/bin/
printf %%s '%[4]s' >kind/version
# Root may lack the capability to lower a score for the out-of-memory killer.
sed -i 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' etc/containerd/config.toml
chroot . systemctl enable kubelet.service containerd.service undo-mount-hacks.service
chroot . systemctl mask systemd-binfmt.service
`

// containerSpec writes what each container starts from: containerd's own default with a hook of kind's that hides the
// machine's identity, and without limits on resources.
func (b *builder) containerSpec(ctx context.Context) error {
	out, err := output(b.inRoot(ctx, "ctr", "oci", "spec"))
	if err != nil {
		return err
	}
	var spec map[string]any
	if err := json.Unmarshal([]byte(out), &spec); err != nil {
		return fmt.Errorf("read container defaults: %w", err)
	}
	process, ok := spec["process"].(map[string]any)
	if !ok {
		return errors.New("container defaults have no process")
	}
	delete(process, "rlimits")
	spec["hooks"] = map[string]any{"createContainer": []any{map[string]any{"path": "/kind/bin/mount-product-files.sh"}}}
	content, err := json.Marshal(spec)
	if err != nil {
		return fmt.Errorf("write container defaults: %w", err)
	}
	if err := os.WriteFile(filepath.Join(b.root, "etc/containerd/cri-base.json"), content, 0o600); err != nil {
		return fmt.Errorf("write container defaults: %w", err)
	}
	return nil
}

const preloadConfig = `version = 2
root = "/var/lib/containerd"
state = "/preload/state"
disabled_plugins = ["io.containerd.grpc.v1.cri"]
[grpc]
  address = "/preload/socket"
[plugins."io.containerd.internal.v1.opt"]
  path = "/preload/opt"
`

// preload runs the node's containerd for long enough to give it the images.
func (b *builder) preload(ctx context.Context) error {
	dir := filepath.Join(b.root, "preload")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("preload images: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	if err := os.WriteFile(filepath.Join(dir, "config.toml"), []byte(preloadConfig), 0o600); err != nil {
		return fmt.Errorf("preload images: %w", err)
	}
	var log strings.Builder
	containerd := b.inRoot(ctx, "containerd", "--config", "/preload/config.toml")
	containerd.Stdout, containerd.Stderr = &log, &log
	if err := containerd.Start(); err != nil {
		return fmt.Errorf("start containerd: %w", err)
	}
	importErr := b.importImages(ctx)
	_ = containerd.Process.Signal(os.Interrupt)
	_ = containerd.Wait() // it says how it was ended
	if importErr != nil {
		return fmt.Errorf("%w\n%s", importErr, log.String())
	}
	return nil
}

func (b *builder) importImages(ctx context.Context) error {
	ctr := func(args ...string) *exec.Cmd {
		return b.inRoot(ctx, append([]string{"ctr", "--address", "/preload/socket", "--namespace", "k8s.io"}, args...)...)
	}
	if err := poll(ctx, "containerd", func() error { return quietly(ctr("version")) }); err != nil {
		return err
	}
	archives, err := filepath.Glob(filepath.Join(b.images, "*.tar"))
	if err != nil {
		return err
	}
	for _, archive := range archives {
		file, err := os.Open(archive)
		if err != nil {
			return fmt.Errorf("preload image: %w", err)
		}
		load := ctr("images", "import", "--no-unpack", "-")
		load.Stdin = file
		if err := errors.Join(quietly(load), file.Close()); err != nil {
			return err
		}
	}
	return nil
}

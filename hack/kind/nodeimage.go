// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"iter"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// nodeImages is the name of those that are built here.
const nodeImages = "localhost/berth-node"

// nodeImage returns the name of an image for nodes: the one that the environment names, or one that is built here once for
// each state of this directory. What a cluster has is not to depend on whether a registry answers.
func (d *docker) nodeImage(ctx context.Context) (string, error) {
	if asked := os.Getenv("KIND_NODE_IMAGE"); asked != "" && asked != "build" {
		return asked, stage("pull "+asked, func() error { return pull(ctx, asked) })
	}
	release := os.Getenv("KIND_KUBERNETES")
	module, err := kubernetesModule(release)
	if err != nil {
		return "", err
	}
	key, err := cacheKey(module)
	if err != nil {
		return "", err
	}
	repository := nodeImages
	if release != "" {
		repository += "-" + release // so that neither is forgotten for the other
	}
	built := repository + ":" + key
	if exists(ctx, built) {
		return built, nil
	}
	if err := d.build(ctx, key, module, built); err != nil {
		return "", err
	}
	return built, d.forget(ctx, repository, built)
}

// olderKubernetes begins the names of directories that hold a module which pins another release of Kubernetes, to see that
// Berth works on a host of that release.
const olderKubernetes = "kubernetes-"

// kubernetesModule is the directory of the module that pins a release: this one's, for the release that Berth is built
// with, if none is asked for.
func kubernetesModule(release string) (string, error) {
	if release == "" {
		return ".", nil
	}
	modules, err := filepath.Glob(olderKubernetes + "*")
	if err != nil {
		return "", fmt.Errorf("list releases of Kubernetes: %w", err)
	}
	if !slices.Contains(modules, olderKubernetes+release) {
		for i, module := range modules {
			modules[i] = strings.TrimPrefix(module, olderKubernetes)
		}
		return "", fmt.Errorf("KIND_KUBERNETES is %q: it can be %s, or nothing for the release that Berth is built with",
			release, strings.Join(modules, " or "))
	}
	return olderKubernetes + release, nil
}

func exists(ctx context.Context, image string) bool {
	return exec.CommandContext(ctx, "docker", "image", "inspect", image).Run() == nil
}

func pull(ctx context.Context, image string) error {
	if exists(ctx, image) {
		return nil
	}
	return quietly(exec.CommandContext(ctx, "docker", "pull", "-q", image))
}

// driver is what has no part in a node image.
var driver = []string{"main.go", "docker.go", "cluster.go", "machine.go", "poll.go", "nodeimage.go", "runcfront/main.go"}

// cacheKey is a hash of all that makes a node image: the rest of this directory, with its go.mod, the module of an older
// Kubernetes if it has one, and the version of Go.
func cacheKey(module string) (string, error) {
	hash := sha256.New()
	fmt.Fprintln(hash, runtime.Version(), runtime.GOARCH)
	err := filepath.WalkDir(".", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.IsDir() && strings.HasPrefix(path, olderKubernetes) && path != module {
			return fs.SkipDir
		}
		if err != nil || !entry.Type().IsRegular() || slices.Contains(driver, path) || strings.HasSuffix(path, "_test.go") {
			return err
		}
		fmt.Fprintln(hash, path)
		file, err := os.Open(path)
		if err != nil {
			return err
		}
		defer func() { _ = file.Close() }()
		_, err = io.Copy(hash, file)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("find out what the node image is made of: %w", err)
	}
	return hex.EncodeToString(hash.Sum(nil)[:8]), nil
}

// build makes a node image of Go modules and Debian packages, with the Kubernetes of a module.
func (d *docker) build(ctx context.Context, key, module, image string) error {
	if os.Geteuid() != 0 {
		return errors.New("only root can build a node image: run this as root once, " +
			"or set KIND_NODE_IMAGE to one that this machine has or can pull")
	}
	b := &builder{
		bin: filepath.Join(d.dir, key, "bin"), images: filepath.Join(d.dir, key, "images"), root: filepath.Join(d.dir, key, "root"),
		kubernetes: module,
	}
	if err := os.RemoveAll(filepath.Join(d.dir, key)); err != nil { // what one that was killed left
		return fmt.Errorf("clear cache: %w", err)
	}
	for _, dir := range []string{b.bin, b.images} {
		if err := os.MkdirAll(dir, 0o700); err != nil {
			return fmt.Errorf("make cache: %w", err)
		}
	}
	defer func() { _ = os.RemoveAll(filepath.Join(d.dir, key)) }()
	for _, s := range []struct {
		name string
		step func(context.Context) error
	}{
		{"system packages", func(ctx context.Context) error { return install(ctx, builderPackages) }},
		{"compile Kubernetes and others", b.compile},
		{"debootstrap", func(ctx context.Context) error { return debootstrap(ctx, b.root, nodePackages) }},
		{"assemble images", b.assembleImages},
		{"configure node", b.configure},
		{"preload images", b.preload},
		{"import node image", func(ctx context.Context) error { return b.importTo(ctx, image) }},
	} {
		if err := stage(s.name, func() error { return s.step(ctx) }); err != nil {
			return err
		}
	}
	return nil
}

// forget removes images that were built of what this directory once was, unless a cluster uses them.
func (d *docker) forget(ctx context.Context, repository, current string) error {
	images, err := output(exec.CommandContext(ctx, "docker", "images", "--format", "{{.Repository}}:{{.Tag}}", repository))
	if err != nil {
		return err
	}
	for _, image := range strings.Fields(images) {
		if image != current {
			_ = exec.CommandContext(ctx, "docker", "rmi", image).Run() // it is in use
		}
	}
	return nil
}

// linesOf splits text into lines, and those into fields.
func linesOf(text string) iter.Seq[[]string] {
	return func(yield func([]string) bool) {
		for line := range strings.Lines(text) {
			if fields := strings.Fields(line); len(fields) > 0 && !yield(fields) {
				return
			}
		}
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Command image builds the container image that charts/berth runs: the berth
// command, linked without shared libraries, and the certificates of public
// CAs. It needs Go, a C compiler with a static C library, and neither a
// container engine nor a base image to pull.
//
//	image -name berth:dev -o berth.tar
//
// What it writes is what `docker save` would: for `docker load`, `kind load
// image-archive`, and tools that push such files to a registry.
package main

import (
	"archive/tar"
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// user is who the command runs as: nobody that the nodes know.
const user = "65532:65532"

// publicCAs is where a Linux distribution keeps the public CAs, and
// where Go looks for them.
const publicCAs = "/etc/ssl/certs/ca-certificates.crt"

func main() {
	var o options
	flag.StringVar(&o.name, "name", "berth:dev", "name and tag of the image")
	flag.StringVar(&o.out, "o", "bin/berth-image.tar", "file to write")
	flag.StringVar(&o.version, "version", "dev", "version that the command tells")
	flag.StringVar(&o.module, "C", ".", "directory of Berth's sources")
	flag.Parse()
	if err := o.build(); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

type options struct{ name, out, version, module string }

func (o options) build() error {
	tag, err := name.NewTag(o.name)
	if err != nil {
		return fmt.Errorf("-name=%s: %w", o.name, err)
	}
	dir, err := os.MkdirTemp("", "berth-image-")
	if err != nil {
		return fmt.Errorf("make a directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	command := filepath.Join(dir, "berth")
	if err := o.link(command); err != nil {
		return err
	}
	image, err := assemble(command)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(o.out), 0o755); err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	if err := tarball.WriteToFile(o.out, tag, image); err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	return nil
}

// link builds the command. SQLite is C, so the C library comes with it; of that,
// only what SQLite needs is used, as netdns=go and $HOME keep Go from asking it
// for names of hosts and users, which a static one can't answer.
func (o options) link(command string) error {
	cmd := exec.Command("go", "build", "-o", command,
		"-ldflags", "-s -w -linkmode external -extldflags '-static' -X main.version="+o.version, "./cmd/berth")
	cmd.Dir = o.module
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1")
	// The linker warns of what the C library would look up at run time.
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("build berth: %w\n%s", err, out)
	}
	return nil
}

func assemble(command string) (v1.Image, error) {
	files := []file{{command, "usr/bin/berth", 0o755}, {publicCAs, publicCAs[1:], 0o644}}
	layer, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return archive(files) })
	if err != nil {
		return nil, fmt.Errorf("make layer: %w", err)
	}
	image, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, fmt.Errorf("add layer: %w", err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, fmt.Errorf("configure image: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config = v1.Config{
		Entrypoint: []string{"/usr/bin/berth"},
		Env:        []string{"PATH=/usr/bin", "HOME=/data", "BERTH_DATA_DIR=/data", "GODEBUG=netdns=go"},
		User:       user,
		WorkingDir: "/",
		Labels:     map[string]string{"org.opencontainers.image.title": "berth", "org.opencontainers.image.licenses": "Apache-2.0"},
	}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, fmt.Errorf("configure image: %w", err)
	}
	return image, nil
}

type file struct {
	from, to string
	mode     int64
}

// archive is a tar of files, without their times and owners: the same command
// makes the same image.
func archive(files []file) (io.ReadCloser, error) {
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	for _, dir := range []string{"data/", "tmp/"} {
		header := &tar.Header{Typeflag: tar.TypeDir, Name: dir, Mode: 0o755, Uid: 65532, Gid: 65532}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
	}
	for _, f := range files {
		content, err := os.ReadFile(f.from)
		if err != nil {
			return nil, fmt.Errorf("read what goes into the image: %w", err)
		}
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.to, Mode: f.mode, Size: int64(len(content))}
		if err := w.WriteHeader(header); err != nil {
			return nil, err
		}
		if _, err := w.Write(content); err != nil {
			return nil, err
		}
	}
	return io.NopCloser(&buffer), w.Close()
}

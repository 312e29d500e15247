// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// imageFile is a file of an image: where it is here, and where there.
type imageFile struct{ from, to string }

// loader lists the shared libraries that a program needs.
type loader func(program string) ([]imageFile, error)

// libraries asks this machine's linker.
func libraries(program string) ([]imageFile, error) {
	return parseLibraries("", exec.Command("ldd", program))
}

// withLibraries lists programs of this machine's, to be where they are here, and what they need.
func withLibraries(programs []string) ([]imageFile, error) {
	var all []imageFile
	for _, program := range programs {
		needed, err := libraries(program)
		if err != nil {
			return nil, fmt.Errorf("program %s: %w", program, err)
		}
		all = append(append(all, imageFile{program, program}), needed...)
	}
	return all, nil
}

// parseLibraries reads what ldd prints: each library's path is the one word of its line that begins with a slash.
func parseLibraries(root string, ldd *exec.Cmd) ([]imageFile, error) {
	out, err := ldd.CombinedOutput()
	if strings.Contains(string(out), "not a dynamic executable") {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list shared libraries: %w\n%s", err, out)
	}
	var files []imageFile
	for fields := range linesOf(string(out)) {
		for _, field := range fields {
			if strings.HasPrefix(field, "/") {
				files = append(files, imageFile{root + field, field})
			}
		}
	}
	return files, nil
}

// writeImage writes an image of programs, and what they need, as docker save would. Its entrypoint is the first one.
func writeImage(file, tag, entrypoint string, needs loader, program string, more ...imageFile) error {
	files := append([]imageFile{{program, entrypoint}}, more...)
	needed, err := needs(program)
	if err != nil {
		return err
	}
	layer, err := archive(append(files, needed...))
	if err != nil {
		return err
	}
	l, err := tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(layer)), nil })
	if err != nil {
		return fmt.Errorf("make layer: %w", err)
	}
	image, err := mutate.AppendLayers(empty.Image, l)
	if err != nil {
		return fmt.Errorf("add layer: %w", err)
	}
	config, err := image.ConfigFile()
	if err != nil {
		return fmt.Errorf("configure image: %w", err)
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = "linux", runtime.GOARCH
	config.Config = v1.Config{Entrypoint: []string{entrypoint}, Env: []string{"PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"}}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return fmt.Errorf("configure image: %w", err)
	}
	reference, err := name.NewTag(tag)
	if err != nil {
		return fmt.Errorf("name image: %w", err)
	}
	if err := tarball.WriteToFile(file, reference, image); err != nil {
		return fmt.Errorf("write image: %w", err)
	}
	return nil
}

// archive is a tar of files and of the directories above them, without times and owners.
func archive(files []imageFile) ([]byte, error) {
	var buffer bytes.Buffer
	w := tar.NewWriter(&buffer)
	done := map[string]bool{".": true}
	if err := directories(w, done, "tmp/x"); err != nil {
		return nil, err
	}
	for _, f := range files {
		to := strings.TrimPrefix(f.to, "/")
		if done[to] {
			continue
		}
		done[to] = true
		if err := directories(w, done, to); err != nil {
			return nil, err
		}
		content, err := os.ReadFile(filepath.Clean(f.from))
		if err != nil {
			return nil, fmt.Errorf("read what goes into the image: %w", err)
		}
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: to, Mode: 0o755, Size: int64(len(content))}); err != nil {
			return nil, err
		}
		if _, err := w.Write(content); err != nil {
			return nil, err
		}
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	return buffer.Bytes(), nil
}

func directories(w *tar.Writer, done map[string]bool, file string) error {
	dir := path.Dir(file)
	if done[dir] {
		return nil
	}
	done[dir] = true
	if err := directories(w, done, dir); err != nil {
		return err
	}
	mode := int64(0o755)
	if dir == "tmp" {
		mode = 0o1777
	}
	return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: mode})
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/klauspost/compress/zstd"
)

const (
	storeFile    = "store.db"
	manifestFile = "manifest.json"
	// maxManifest is the maximum size of a manifest.
	maxManifest = 1 << 20
)

// identityFiles are the files that identify a space, beside its store.
var identityFiles = []string{"node.key", "store.id", "pki"}

// manifest is the last file of an archive. Without it, the archive is truncated.
type manifest struct {
	Space string            `json:"space"`
	Time  time.Time         `json:"time"`
	Files map[string]string `json:"files"` // SHA-256 by file name
	// Elsewhere means that a process on another machine sent the store. If somebody has taken over that process, the
	// store may contain anything.
	Elsewhere bool `json:"elsewhere,omitempty"`
}

// pack writes an archive of a space's store, and of the identity in dir, to w, until ctx ends.
func pack(ctx context.Context, w io.Writer, id ID, storePath, dir string, elsewhere bool) (err error) {
	// Archives are small and many. One at a time, on one core, is fast enough.
	compressed, err := zstd.NewWriter(w, zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(true))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, compressed.Close()) }()
	archive := tar.NewWriter(compressed)
	defer func() { err = errors.Join(err, archive.Close()) }()
	m := manifest{Space: id.Space, Time: id.Time, Files: map[string]string{}, Elsewhere: elsewhere}
	add := func(name, path string) error {
		sum, err := packFile(ctx, archive, name, path)
		m.Files[name] = sum
		return err
	}
	if err := add(storeFile, storePath); err != nil {
		return err
	}
	for _, root := range identityFiles {
		err := filepath.WalkDir(filepath.Join(dir, root), func(path string, e fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			if err != nil || !e.Type().IsRegular() {
				return err
			}
			name, err := filepath.Rel(dir, path)
			if err != nil {
				return err
			}
			return add(filepath.ToSlash(name), path)
		})
		if err != nil {
			return err
		}
	}
	data, err := json.Marshal(m)
	if err != nil {
		return err
	}
	if err := archive.WriteHeader(&tar.Header{Name: manifestFile, Mode: 0o600, Size: int64(len(data)), ModTime: id.Time}); err != nil {
		return err
	}
	_, err = archive.Write(data)
	return err
}

func packFile(ctx context.Context, archive *tar.Writer, name, path string) (sum string, err error) {
	file, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return "", err
	}
	if err := archive.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: info.Size(), ModTime: info.ModTime()}); err != nil {
		return "", err
	}
	hash := sha256.New()
	if _, err := io.Copy(io.MultiWriter(archive, hash), &untilEnd{ctx, file}); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}

// ErrDamaged is returned for an archive whose contents differ from what was written.
var ErrDamaged = errors.New("snapshot is damaged")

// unpack writes the files of an archive into dir, which must be empty, and returns its manifest. After an error, the
// files must not be used.
func unpack(r io.Reader, dir string) (m *manifest, err error) {
	m, sums, err := unpackFiles(r, dir)
	if err != nil {
		return nil, err
	}
	if m == nil || len(m.Files) != len(sums) || m.Files[storeFile] == "" {
		return nil, fmt.Errorf("%w: it is cut off; choose another", ErrDamaged)
	}
	for name, sum := range m.Files {
		if sums[name] != sum {
			return nil, fmt.Errorf("%w: its %s is not what was written; choose another", ErrDamaged, name)
		}
	}
	return m, nil
}

func unpackFiles(r io.Reader, dir string) (m *manifest, sums map[string]string, err error) {
	compressed, err := zstd.NewReader(r, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, nil, err
	}
	defer compressed.Close()
	sums = map[string]string{}
	for archive := tar.NewReader(compressed); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			// After the last file, there is only a checksum of everything.
			if _, err = io.Copy(io.Discard, compressed); err == nil {
				return m, sums, nil
			}
		}
		if err != nil {
			return nil, nil, fmt.Errorf("%w: %w; choose another", ErrDamaged, err)
		}
		if header.Name == manifestFile {
			m = &manifest{}
			if err := json.NewDecoder(io.LimitReader(archive, maxManifest)).Decode(m); err != nil {
				return nil, nil, fmt.Errorf("%w: its manifest: %w; choose another", ErrDamaged, err)
			}
			continue
		}
		if !expected(header) || sums[header.Name] != "" {
			return nil, nil, fmt.Errorf("%w: it holds %q, which no snapshot does; choose another", ErrDamaged, header.Name)
		}
		if sums[header.Name], err = unpackFile(archive, filepath.Join(dir, filepath.FromSlash(header.Name))); err != nil {
			return nil, nil, err
		}
	}
}

// expected reports whether a file may be in an archive, so that no name leads out of the directory.
func expected(h *tar.Header) bool {
	root, rest := filepath.Split(filepath.FromSlash(h.Name))
	return h.Typeflag == tar.TypeReg && (h.Name == storeFile ||
		root == "" && rest != "pki" && slices.Contains(identityFiles, rest) ||
		root == "pki"+string(filepath.Separator) && filepath.IsLocal(rest) && rest != "." && rest != "")
}

func unpackFile(r io.Reader, path string) (sum string, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return "", err
	}
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return "", err
	}
	hash := sha256.New()
	var full *fs.PathError
	_, err = io.Copy(io.MultiWriter(file, hash), r)
	if err == nil {
		err = file.Sync()
	} else if !errors.As(err, &full) {
		err = fmt.Errorf("%w: %w; choose another", ErrDamaged, err)
	}
	return hex.EncodeToString(hash.Sum(nil)), errors.Join(err, file.Close())
}

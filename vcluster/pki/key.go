// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/client-go/util/keyutil"
)

func newKey() (*ecdsa.PrivateKey, error) {
	return ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
}

const serviceAccountFile = "service-account.key"

// ServiceAccountKey returns the path of the PEM file with the key that signs
// service-account tokens, and makes the key if the file is absent.
func ServiceAccountKey(dir string) (path string, err error) {
	path = filepath.Join(dir, serviceAccountFile)
	_, err = readKey(path)
	if err == nil {
		return path, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("load service-account key: %w", err)
	}
	if err := makeDir(dir); err != nil {
		return "", err
	}
	return path, makeServiceAccountKey(dir)
}

func makeServiceAccountKey(dir string) error {
	key, err := newKey()
	if err != nil {
		return fmt.Errorf("make service-account key: %w", err)
	}
	data, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return fmt.Errorf("encode service-account key: %w", err)
	}
	if err := WriteFile(filepath.Join(dir, serviceAccountFile), data); err != nil {
		return fmt.Errorf("write service-account key: %w", err)
	}
	return nil
}

// ServiceAccountPublicKey is what verifies the tokens that the key in dir signs.
func ServiceAccountPublicKey(dir string) (*ecdsa.PublicKey, error) {
	key, err := readKey(filepath.Join(dir, serviceAccountFile))
	if err != nil {
		return nil, fmt.Errorf("load service-account key: %w", err)
	}
	return &key.PublicKey, nil
}

func readKey(path string) (*ecdsa.PrivateKey, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	parsed, err := keyutil.ParsePrivateKeyPEM(data)
	if err != nil {
		return nil, fmt.Errorf("parse %s: %w", path, err)
	}
	key, ok := parsed.(*ecdsa.PrivateKey)
	if !ok {
		return nil, fmt.Errorf("parse %s: it holds a %T, want an ECDSA key", path, parsed)
	}
	return key, nil
}

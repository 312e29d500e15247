// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/vcluster/pki"
)

// ServerCA returns the PEM bundle by which kubeconfigs verify the API endpoint: that of the platform's own CA, port, and of the CA
// of the endpoint's certificate if it comes from files. It is nil if that is one of the CAs of clients' systems. A platform may run
// on the data directory or not.
func ServerCA(dataDir string, port *pki.CA) ([]byte, error) {
	issuer, err := os.ReadFile(datadir.EndpointCA(dataDir))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return port.PEM(), nil
	case err != nil:
		return nil, fmt.Errorf("read the CA of the API endpoint: %w", err)
	case len(issuer) == 0:
		return nil, nil
	}
	return append(bytes.Clone(port.PEM()), issuer...), nil
}

// KeepServerCA writes the CA of the endpoint's certificate to the data directory, for [ServerCA]. An empty one says that clients'
// systems know the CA, and own that the certificate is that of the platform's own CA.
func KeepServerCA(dataDir string, issuer []byte, own bool) error {
	path := datadir.EndpointCA(dataDir)
	if own {
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove the CA of the API endpoint: %w", err)
		}
		return nil
	}
	if have, err := os.ReadFile(path); err == nil && bytes.Equal(have, issuer) {
		return nil
	}
	if err := pki.WriteFile(path, issuer); err != nil {
		return fmt.Errorf("write the CA of the API endpoint: %w", err)
	}
	return nil
}

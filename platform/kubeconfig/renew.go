// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/vcluster/pki"
)

// Renew renews the certificate in the kubeconfig of a space, or of the host, if necessary, makes the kubeconfig trust
// [ServerCA], and returns it. server replaces the address in it, unless it is empty. The space may sleep.
func Renew(dataDir, name, server string, port *pki.CA) ([]byte, error) {
	path := datadir.Kubeconfig(dataDir, name)
	old, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig of %s: %w", name, err)
	}
	clients, err := OpenClientCA(dataDir, name)
	if errors.Is(err, ErrNoKeys) {
		return old, nil
	}
	if err != nil {
		return nil, fmt.Errorf("renew kubeconfig of %s: %w", name, err)
	}
	serverCA, err := ServerCA(dataDir, port)
	if err != nil {
		return nil, fmt.Errorf("renew kubeconfig of %s: %w", name, err)
	}
	renewed, err := pki.RenewKubeconfig(old, server, clients, serverCA)
	if err != nil {
		return nil, fmt.Errorf("renew kubeconfig %s: %w", path, err)
	}
	if !bytes.Equal(old, renewed) {
		if err := pki.WriteFile(path, renewed); err != nil {
			return nil, fmt.Errorf("write kubeconfig of %s: %w", name, err)
		}
	}
	return renewed, nil
}

// Read returns the kubeconfig of a space, or of the host, with a certificate that is valid for at least half of
// [DefaultTTL]. A platform may run on the data directory or not.
func Read(dataDir, name string) ([]byte, error) {
	if !pki.Exists(datadir.PortKeys(dataDir)) {
		return os.ReadFile(datadir.Kubeconfig(dataDir, name))
	}
	port, err := pki.OpenCA(datadir.PortKeys(dataDir), datadir.PortCA)
	if err != nil {
		return nil, err
	}
	return Renew(dataDir, name, "", port)
}

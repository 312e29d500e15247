// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/vcluster/pki"
)

// hostFiles is by what the processes of dedicated spaces reach an embedded host: a kubeconfig that names files, which
// clients read anew while they run, so that a process may live for longer than a certificate.
type hostFiles struct{ dir string }

func (f hostFiles) path(name string) string { return filepath.Join(f.dir, name) }

// kubeconfig is the path of the kubeconfig.
func (f hostFiles) kubeconfig() string { return f.path("processes.kubeconfig") }

// renew writes the files if they are not there, the certificate is past half of its life, or server is another.
func (f hostFiles) renew(server string, clients, port *pki.CA) error {
	if old, err := os.ReadFile(f.path("processes.crt")); err != nil || !clients.Fresh(old) {
		client, err := clients.Client("berth-processes", []string{AdminGroup})
		if err != nil {
			return err
		}
		// Whoever reads them between the two writes finds that they don't match, keeps what it has, and reads again.
		if err := pki.WriteFile(f.path("processes.key"), client.Key); err != nil {
			return fmt.Errorf("write key of processes: %w", err)
		}
		if err := pki.WriteFile(f.path("processes.crt"), client.Cert); err != nil {
			return fmt.Errorf("write certificate of processes: %w", err)
		}
	}
	config, err := pki.KubeconfigOfFiles(HostName, server, port.PEM(), "processes.crt", "processes.key") // beside it
	if err != nil {
		return err
	}
	if err := pki.WriteFile(f.kubeconfig(), config); err != nil {
		return fmt.Errorf("write kubeconfig of processes: %w", err)
	}
	return nil
}

func (p *Platform) hostFiles() hostFiles { return hostFiles{hostDir(p.config.DataDir)} }

// renewHostFiles renews them: any space may come to have a process.
func (p *Platform) renewHostFiles() error {
	if !p.config.Host.Embedded {
		return nil
	}
	clients, err := openClientCA(p.config.DataDir, HostName)
	if err != nil {
		return err
	}
	return p.hostFiles().renew(p.Endpoint(gateway.SystemSpace), clients, p.ca)
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"errors"
	"fmt"
	"net/url"
	"os/exec"
	"runtime"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/berth-dev/berth/client/login"
	"github.com/berth-dev/berth/platform/datadir"
)

// localServer returns the Berth that has a data directory on this machine.
func localServer(dataDir string) (login.Server, error) {
	names, err := datadir.Kubeconfigs(dataDir)
	if err != nil || len(names) == 0 {
		return login.Server{}, fmt.Errorf("no Berth is on this machine in --data-dir=%s; use --server", dataDir)
	}
	config, err := clientcmd.LoadFromFile(datadir.Kubeconfig(dataDir, names[0]))
	if err != nil {
		return login.Server{}, fmt.Errorf("find the address of Berth: %w; use --server", err)
	}
	current := config.Contexts[config.CurrentContext]
	if current == nil || config.Clusters[current.Cluster] == nil {
		return login.Server{}, errors.New("find the address of Berth: its kubeconfig has no current context; use --server")
	}
	cluster := config.Clusters[current.Cluster]
	server, err := url.Parse(cluster.Server)
	if err != nil {
		return login.Server{}, fmt.Errorf("find the address of Berth: %w; use --server", err)
	}
	return login.Server{URL: "https://" + server.Host, CA: cluster.CertificateAuthorityData}, nil
}

// openBrowser opens a URL if there is a program for that. It is printed anyhow.
func openBrowser(url string) {
	name := map[string]string{"darwin": "open"}[runtime.GOOS]
	if name == "" {
		name = "xdg-open"
	}
	cmd := exec.Command(name, url)
	if cmd.Start() == nil {
		go func() { _ = cmd.Wait() }()
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package side

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/berth-dev/berth/internal/stock"
)

// stockProcess is the peer's side: upstream API servers, each with an etcd.
type stockProcess struct {
	dir     string
	running map[string]func(context.Context) error // by name, how to stop it
}

func openStock(dir string) *stockProcess {
	return &stockProcess{dir: dir, running: map[string]func(context.Context) error{}}
}

func (s *stockProcess) Start(ctx context.Context, name string) ([]byte, error) {
	dir := filepath.Join(s.dir, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, fmt.Errorf("make a place for data: %w", err)
	}
	config, stop, err := stock.Start(ctx, dir)
	if err != nil {
		return nil, err
	}
	s.running[name] = stop
	return writeKubeconfig(config)
}

func (s *stockProcess) Stop(ctx context.Context, name string) error {
	stop := s.running[name]
	delete(s.running, name)
	if stop == nil {
		return nil
	}
	return stop(ctx)
}

func (s *stockProcess) Close(ctx context.Context) error {
	var errs []error
	for name := range s.running {
		errs = append(errs, s.Stop(ctx, name))
	}
	return errors.Join(errs...)
}

// writeKubeconfig says in a file's form what a loopback configuration says.
func writeKubeconfig(c *rest.Config) ([]byte, error) {
	const name = "stock"
	data, err := clientcmd.Write(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{name: {
			Server: c.Host, CertificateAuthorityData: c.CAData, TLSServerName: c.ServerName,
		}},
		AuthInfos:      map[string]*clientcmdapi.AuthInfo{name: {Token: c.BearerToken}},
		Contexts:       map[string]*clientcmdapi.Context{name: {Cluster: name, AuthInfo: name}},
		CurrentContext: name,
	})
	if err != nil {
		return nil, fmt.Errorf("write kubeconfig: %w", err)
	}
	return data, nil
}

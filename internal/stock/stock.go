// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package stock starts an upstream API server the way its own command does: what
// Berth's control planes are measured against by bench, and compared with by
// tests. Upstream sets feature gates for the whole process, as Berth does, to
// others: run it in a process of its own.
package stock

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"

	"go.etcd.io/etcd/server/v3/embed"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/keyutil"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

// serviceIPs and address can't be loopback addresses: upstream refuses those in Endpoints. Nothing listens there.
const (
	serviceIPs = "10.96.0.0/16"
	address    = "192.0.2.1"
)

// Start starts an API server with stock options, TLS on a loopback port, and an etcd of its own with stock options. It runs
// no controllers, which a space does. ctx bounds the start. The client has all rights, in this process only.
func Start(ctx context.Context, dir string) (_ *rest.Config, stop func(context.Context) error, err error) {
	etcd, err := startEtcd(ctx, filepath.Join(dir, "etcd"))
	if err != nil {
		return nil, nil, err
	}
	config, stopServer, err := startServer(dir, "http://"+etcd.Clients[0].Addr().String())
	if err != nil {
		etcd.Close()
		return nil, nil, fmt.Errorf("start stock API server: %w", err)
	}
	return config, func(ctx context.Context) error {
		err := stopServer(ctx)
		etcd.Close()
		return err
	}, nil
}

func startEtcd(ctx context.Context, dir string) (*embed.Etcd, error) {
	anyPort := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	c := embed.NewConfig()
	c.Dir = dir
	c.LogLevel = "panic"
	c.ListenClientUrls, c.AdvertiseClientUrls = anyPort, anyPort
	c.ListenPeerUrls, c.AdvertisePeerUrls = anyPort, anyPort
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	etcd, err := embed.StartEtcd(c)
	if err != nil {
		return nil, fmt.Errorf("start etcd: %w", err)
	}
	select {
	case <-etcd.Server.ReadyNotify():
		return etcd, nil
	case err = <-etcd.Err():
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	etcd.Close()
	return nil, fmt.Errorf("start etcd: %w", err)
}

func startServer(dir, etcd string) (_ *rest.Config, stop func(context.Context) error, err error) {
	o, err := newOptions(dir, etcd)
	if err != nil {
		return nil, nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	client, run, err := assemble(ctx, o)
	if err != nil {
		cancel()
		return nil, nil, err
	}
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	return client, func(ctx context.Context) error {
		cancel()
		select {
		case err := <-ended:
			if errors.Is(err, context.Canceled) {
				return nil
			}
			return err
		case <-ctx.Done():
			return fmt.Errorf("stop stock API server: %w", context.Cause(ctx))
		}
	}, nil
}

// newOptions are upstream's defaults with the values that have none.
func newOptions(dir, etcd string) (*options.ServerRunOptions, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make service account key: %w", err)
	}
	pem, err := keyutil.MarshalPrivateKeyToPEM(key)
	if err != nil {
		return nil, fmt.Errorf("encode service account key: %w", err)
	}
	keyFile := filepath.Join(dir, "sa.key")
	if err := keyutil.WriteKey(keyFile, pem); err != nil {
		return nil, fmt.Errorf("write service account key: %w", err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	o := options.NewServerRunOptions()
	o.SecureServing.Listener = listener
	o.SecureServing.ServerCert.CertDirectory = dir
	o.GenericServerRunOptions.AdvertiseAddress = net.ParseIP(address)
	o.Etcd.StorageConfig.Transport.ServerList = []string{etcd}
	o.ServiceClusterIPRanges = serviceIPs
	o.ServiceAccountSigningKeyFile = keyFile
	o.Authentication.ServiceAccounts.KeyFiles = []string{keyFile}
	o.Authentication.ServiceAccounts.Issuers = []string{"https://kubernetes.default.svc"}
	o.Authorization.Modes = []string{"Node", "RBAC"}
	return o, nil
}

// assemble follows upstream's own Run up to the server that is prepared to run.
func assemble(ctx context.Context, o *options.ServerRunOptions) (*rest.Config, func(context.Context) error, error) {
	// Upstream applies feature gates and versions process-wide. Setting the same twice is harmless.
	if err := o.GenericServerRunOptions.ComponentGlobalsRegistry.Set(); err != nil {
		return nil, nil, fmt.Errorf("set feature gates: %w", err)
	}
	completedOptions, err := o.Complete(ctx)
	if err != nil {
		return nil, nil, fmt.Errorf("complete options: %w", err)
	}
	if errs := completedOptions.Validate(); len(errs) != 0 {
		return nil, nil, fmt.Errorf("validate options: %w", utilerrors.NewAggregate(errs))
	}
	config, err := app.NewConfig(completedOptions)
	if err != nil {
		return nil, nil, err
	}
	completed, err := config.Complete()
	if err != nil {
		return nil, nil, err
	}
	server, err := app.CreateServerChain(completed)
	if err != nil {
		return nil, nil, err
	}
	prepared, err := server.PrepareRun()
	if err != nil {
		return nil, nil, err
	}
	return server.GenericAPIServer.LoopbackClientConfig, prepared.Run, nil
}

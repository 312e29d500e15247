// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/tenancy"
	"github.com/berth-dev/berth/translate"
)

// berth is the side of spaces: a shard behind a TLS port, whose host runs in another process, as in production.
type berth struct {
	shard  *shard.Shard
	server *gateway.Server
	host   client.Client
}

func openBerth(ctx context.Context, dir string, host []byte) (*berth, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(host)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig of the host: %w", err)
	}
	config.QPS = -1
	b := &berth{}
	if b.host, err = client.New(config, client.Options{Scheme: scheme.Scheme}); err != nil {
		return nil, fmt.Errorf("make host client: %w", err)
	}
	port, err := openPort(ctx, dir)
	if err != nil {
		return nil, err
	}
	b.shard, err = shard.Start(ctx, shard.Config{
		Dir: filepath.Join(dir, "spaces"), Host: config, Endpoint: port.url, ServingCA: port.ca.PEM, Logger: klog.Background(),
	})
	if err != nil {
		return nil, err
	}
	b.server, err = port.serve(b.shard.Handler)
	return b, err
}

// start builds the walls of a space and starts it: all that an admin waits for. Its clients come through the port.
func (b *berth) start(ctx context.Context, name string) ([]byte, error) {
	quota := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("100000")}
	if err := tenancy.Build(ctx, b.host, translate.Space{Name: name}, quota); err != nil {
		return nil, err
	}
	space, err := b.shard.StartSpace(ctx, name)
	if err != nil {
		return nil, err
	}
	return space.Kubeconfig("bench", []string{user.SystemPrivilegedGroup})
}

// sleepTime is how long a space may be busy before it can sleep.
const sleepTime = time.Minute

func (b *berth) sleep(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, sleepTime)
	defer cancel()
	return b.shard.Sleep(ctx, name)
}

func (b *berth) stop(ctx context.Context, name string) error { return b.shard.StopSpace(ctx, name) }

// close ends the port before the spaces behind it. What ctx allows is for both.
func (b *berth) close(ctx context.Context) error {
	b.server.Stop(ctx)
	return b.shard.Stop(ctx)
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/tenancy"
	"github.com/berth-dev/berth/translate"
)

// berth is a shard behind a TLS port, whose host runs in another process, as in production.
type berth struct {
	*shard.Shard
	server *gateway.Server
	host   *rest.Config
	client client.Client
}

func startBerth(ctx context.Context, s settings, dir string) (_ *berth, err error) {
	b := &berth{}
	if b.host, err = clientcmd.BuildConfigFromFlags("", s.Host); err != nil {
		return nil, fmt.Errorf("-host-kubeconfig=%s: %w", s.Host, err)
	}
	b.host.QPS = -1
	if b.client, err = client.New(b.host, client.Options{Scheme: scheme.Scheme}); err != nil {
		return nil, fmt.Errorf("make host client: %w", err)
	}
	port, err := openPort(ctx, dir)
	if err != nil {
		return nil, err
	}
	b.Shard, err = shard.Start(ctx, shard.Config{
		Dir: filepath.Join(dir, "spaces"), Host: b.host, Endpoint: port.url, ServingCA: port.ca.PEM(), Logger: klog.Background(),
	})
	if err != nil {
		return nil, err
	}
	b.server, err = port.serve(b.Handler)
	return b, err
}

// startSpace builds the walls of a space and starts it: all that an admin waits for. Its client comes through the port.
func (b *berth) startSpace(ctx context.Context, name string) (*controlPlane, error) {
	quota := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("100000")}
	if err := tenancy.Build(ctx, b.client, translate.Space{Name: name}, quota); err != nil {
		return nil, err
	}
	space, err := b.StartSpace(ctx, name)
	if err != nil {
		return nil, err
	}
	kubeconfig, err := space.Kubeconfig("bench", []string{user.SystemPrivilegedGroup})
	if err != nil {
		return nil, err
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	config.QPS = -1
	return &controlPlane{client: config, stop: func(ctx context.Context) error { return b.StopSpace(ctx, name) }}, nil
}

// stop ends the port before the spaces behind it. What ctx allows is for both.
func (b *berth) stop(ctx context.Context) error {
	b.server.Stop(ctx)
	return b.Stop(ctx)
}

// measureSpaces measures spaces with everything that belongs to them: API server, controllers, syncer, port.
func measureSpaces(ctx context.Context, s settings, dir string) (_ *costs, err error) {
	b, err := startBerth(ctx, s, dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), childStopTime)
		defer cancel()
		err = errors.Join(err, b.stop(stopping))
	}()
	return measureControlPlanes(ctx, s, dir, func(ctx context.Context, dir string) (*controlPlane, error) {
		return b.startSpace(ctx, "bench-"+filepath.Base(dir))
	})
}

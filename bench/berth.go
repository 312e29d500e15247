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
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/tenancy"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/vcluster/pki"
)

// endpoint goes into the spaces' kubeconfigs, which nobody uses here: the benchmark is in process, as the syncer is.
const endpoint = "https://127.0.0.1:7443"

// berth is a shard whose host runs in another process, as in production.
type berth struct {
	*shard.Shard
	host   *rest.Config
	client client.Client
}

func startBerth(ctx context.Context, s settings, dir string) (*berth, error) {
	config, err := clientcmd.BuildConfigFromFlags("", s.Host)
	if err != nil {
		return nil, fmt.Errorf("-host-kubeconfig=%s: %w", s.Host, err)
	}
	config.QPS = -1
	// One authority for the spaces' common port, whatever their number.
	ca, err := pki.OpenCA(filepath.Join(dir, "serving"), "bench")
	if err != nil {
		return nil, err
	}
	b := &berth{host: config}
	if b.client, err = client.New(config, client.Options{Scheme: scheme.Scheme}); err != nil {
		return nil, fmt.Errorf("make host client: %w", err)
	}
	b.Shard, err = shard.Start(ctx, shard.Config{
		Dir: filepath.Join(dir, "spaces"), Host: config, ServingCA: ca.PEM(), Logger: klog.Background(),
		Endpoint: func(space string) string { return endpoint + "/spaces/" + space },
	})
	return b, err
}

// startSpace builds the walls of a space and starts it: all that an admin waits for.
func (b *berth) startSpace(ctx context.Context, name string) (*controlPlane, error) {
	quota := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("100000")}
	if err := tenancy.Build(ctx, b.client, translate.Space{Name: name}, quota); err != nil {
		return nil, err
	}
	space, err := b.StartSpace(ctx, name)
	if err != nil {
		return nil, err
	}
	return &controlPlane{client: space.Loopback(), stop: func(ctx context.Context) error { return b.StopSpace(ctx, name) }}, nil
}

// measureSpaces measures spaces with everything that belongs to them: API server, controllers, syncer.
func measureSpaces(ctx context.Context, s settings, dir string) (_ *costs, err error) {
	b, err := startBerth(ctx, s, dir)
	if err != nil {
		return nil, err
	}
	defer func() {
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), childStopTime)
		defer cancel()
		err = errors.Join(err, b.Stop(stopping))
	}()
	return measureControlPlanes(ctx, s, dir, func(ctx context.Context, dir string) (*controlPlane, error) {
		return b.startSpace(ctx, "bench-"+filepath.Base(dir))
	})
}

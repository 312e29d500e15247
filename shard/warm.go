// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"context"
	"errors"
	"fmt"
	"os"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/vcluster"
)

// WarmUp starts an empty control plane, and stops it again, so that what a process does only once, such as building the schemas of the
// API, is done before a space starts in it. Otherwise, the first space that moves here would hold its requests for that, which takes as
// long as ten later starts. The control plane's files are in dir until WarmUp returns.
func WarmUp(ctx context.Context, dir string, servingCA []byte, logger klog.Logger) (err error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	scratch, err := os.MkdirTemp(dir, "warm-up-*")
	if err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(scratch)) }()
	plane, err := vcluster.Start(ctx, vcluster.Config{
		Name: "warm-up", Dir: scratch, Endpoint: "https://warm-up.invalid", ServingCA: servingCA,
		Controllers: vcluster.SpaceControllers(), HiddenNodes: true, Access: &access.Source{}, Logger: logger,
	})
	if err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	defer func() { err = errors.Join(err, plane.Stop(context.WithoutCancel(ctx))) }()
	client, err := kubernetes.NewForConfig(plane.Loopback())
	if err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	written := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "warm-up"}}
	if _, err := client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, written, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("warm up: %w", err)
	}
	return nil
}

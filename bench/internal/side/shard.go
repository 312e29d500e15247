// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package side

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/platform/peers"
)

const (
	// ShardNamespace is the host namespace of the Shards and their Leases.
	ShardNamespace = "bench-shards"
	// ShardLog is the file in the directory of a shard with its log, a JSON object in each line.
	ShardLog = "shard.log"
	// drainTime is how long a shard that stops waits until its spaces have moved. It is less than the chart's default.
	drainTime = 2 * time.Minute
)

// openShard opens a platform that is one of several processes. Its addresses stay when it starts again.
func openShard(ctx context.Context, dir, name string, args OpenArgs) (*spacePlatform, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(args.Host)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig of the host: %w", err)
	}
	host, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("make host client: %w", err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ShardNamespace}}
	if _, err := host.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return nil, fmt.Errorf("create the namespace of the shards: %w", err)
	}
	log, err := os.Create(filepath.Join(dir, ShardLog)) // ends with the process
	if err != nil {
		return nil, fmt.Errorf("create the log of the shard: %w", err)
	}
	p, err := newPlatform(ctx, dir, args)
	if err != nil {
		return nil, err
	}
	p.config.Logger = logr.FromSlogHandler(slog.NewJSONHandler(log, nil))
	p.config.Peers = peers.Options{Name: name, Namespace: ShardNamespace, DrainTimeout: drainTime}
	for _, address := range []*string{&p.config.Listen, &p.config.Peers.Address} {
		if *address, err = freeAddress(ctx); err != nil {
			return nil, err
		}
	}
	_, err = p.run(ctx)
	return p, err
}

// freeAddress returns a loopback address that nothing listens at.
func freeAddress(ctx context.Context) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return listener.Addr().String(), listener.Close()
}

// place has a new space be on this shard, as the operator would. It does nothing on a platform without shards.
func (p *spacePlatform) place(ctx context.Context, space string) error {
	if !p.config.Peers.Enabled() {
		return nil
	}
	patch := client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"status":{"shard":%q}}`, p.config.Peers.Name))
	if err := p.host.Status().Patch(ctx, &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: space}}, patch); err != nil {
		return fmt.Errorf("place space %s: %w", space, err)
	}
	return nil
}

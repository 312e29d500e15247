// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/berth-dev/berth/bench/internal/side"
)

const (
	// readyPoll is how often it is asked. It bounds the error of the time measured.
	readyPoll = 5 * time.Millisecond
	// firstWrite is the name of the first object that a client writes.
	firstWrite = "first-write"
)

// plane is a running control plane of either side, seen from the parent.
type plane struct {
	name   string
	child  *child
	config *rest.Config
}

func newPlane(c *child, name string, kubeconfig []byte) (*plane, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig of %s: %w", name, err)
	}
	config.QPS = -1
	config.WarningHandler = rest.NoWarnings{} // of deprecated kinds, which are counted too
	return &plane{name: name, child: c, config: config}, nil
}

// client has a connection of its own, as each client of a real cluster has.
func (p *plane) client() (_ kubernetes.Interface, disconnect func(), err error) {
	config := rest.CopyConfig(p.config)
	if config.Dial == nil {
		config.Dial = (&net.Dialer{}).DialContext
	}
	dial := config.Dial
	config.Dial = func(ctx context.Context, network, address string) (net.Conn, error) { // upstream shares connections between configurations that are alike, but not these
		return dial(ctx, network, address)
	}
	h, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, nil, fmt.Errorf("make client of %s: %w", p.name, err)
	}
	client, err := kubernetes.NewForConfigAndClient(config, h)
	if err != nil {
		return nil, nil, fmt.Errorf("make client of %s: %w", p.name, err)
	}
	return client, func() { utilnet.CloseIdleConnectionsFor(h.Transport) }, nil
}

// clients makes several, each with a connection of its own.
func (p *plane) clients(n int) (clients []kubernetes.Interface, disconnect func(), err error) {
	var ends []func()
	disconnect = func() {
		for _, end := range ends {
			end()
		}
	}
	for range n {
		client, end, err := p.client()
		if err != nil {
			disconnect()
			return nil, nil, err
		}
		clients, ends = append(clients, client), append(ends, end)
	}
	return clients, disconnect, nil
}

// awaitWrite waits until the control plane says it is ready and a client has written to it, and leaves no connection.
func (p *plane) awaitWrite(ctx context.Context) error {
	client, disconnect, err := p.client()
	if err != nil {
		return err
	}
	defer disconnect()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: firstWrite}}
	var last error
	err = wait.PollUntilContextTimeout(ctx, readyPoll, side.ReadyTime, true, func(ctx context.Context) (bool, error) {
		if last = client.CoreV1().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error(); last != nil {
			return false, nil
		}
		_, last = client.CoreV1().ConfigMaps(metav1.NamespaceDefault).Create(ctx, cm, metav1.CreateOptions{})
		return last == nil, nil
	})
	if err != nil {
		return fmt.Errorf("wait for the first write to %s: %w", p.name, errors.Join(err, last))
	}
	return nil
}

// allowPods makes the service account that pods need, where no controller does.
func (p *plane) allowPods(ctx context.Context, client kubernetes.Interface) error {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	_, err := client.CoreV1().ServiceAccounts(metav1.NamespaceDefault).Create(ctx, account, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("make the service account of pods of %s: %w", p.name, err)
	}
	return nil
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Command agent is what a cluster of hack/kind runs on each of its nodes in place of a network plugin's and a storage
// provider's daemons: it configures the pods' network, enforces network policies and provisions volumes in directories
// of the node.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		klog.ErrorS(err, "Stop")
		os.Exit(1) // nothing is left to clean up
	}
}

func run(ctx context.Context) error {
	node := flag.String("node", os.Getenv("NODE_NAME"), "name of the node that this agent serves")
	podNetwork := flag.String("pod-network", "10.244.0.0/16", "addresses of all pods, that are not masqueraded")
	cniDir := flag.String("cni-dir", "/etc/cni/net.d", "where the container runtime looks for the network's configuration")
	volumes := flag.String("volumes", "/var/local/volumes", "directory of volumes, on the node and in this container")
	flag.Parse()

	config, err := rest.InClusterConfig()
	if err != nil {
		return fmt.Errorf("find cluster: %w", err)
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client: %w", err)
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	parts := []part{
		newPolicies(factory, *node), // before pods have a network
		newNetwork(factory, *node, *podNetwork, *cniDir),
		newProvisioner(factory, client, *node, *volumes),
	}
	return runParts(ctx, factory, parts)
}

// part is one duty of the agent: sync is called after every change of what the part watches, never twice at once.
type part struct {
	name    string
	changed chan struct{}
	sync    func(context.Context) error
}

func newPart(name string, sync func(context.Context) error) part {
	return part{name: name, changed: make(chan struct{}, 1), sync: sync}
}

// notify makes sync due, once however often it is called meanwhile.
func (p part) notify() {
	select {
	case p.changed <- struct{}{}:
	default:
	}
}

func runParts(ctx context.Context, factory informers.SharedInformerFactory, parts []part) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	factory.Start(ctx.Done())
	defer factory.Shutdown()
	defer cancel()
	for kind, synced := range factory.WaitForCacheSync(ctx.Done()) {
		if !synced {
			return fmt.Errorf("watch %s: %w", kind, context.Cause(ctx))
		}
	}
	// Once in turn: nothing that a part does counts on those behind it.
	for _, p := range parts {
		p.keepSyncing(ctx)
	}
	var group sync.WaitGroup
	for _, p := range parts {
		group.Go(func() { p.run(ctx) })
	}
	group.Wait()
	return nil
}

// run syncs after every change until ctx ends.
func (p part) run(ctx context.Context) {
	for {
		select {
		case <-ctx.Done():
			return
		case <-p.changed:
			p.keepSyncing(ctx)
		}
	}
}

// keepSyncing syncs until that succeeds or ctx ends. One part's failure leaves the others at work.
func (p part) keepSyncing(ctx context.Context) {
	// The one error is that ctx has ended.
	_ = wait.PollUntilContextCancel(ctx, time.Second, true, func(ctx context.Context) (bool, error) {
		err := p.sync(ctx)
		if err != nil {
			klog.ErrorS(err, "Sync failed and is tried again", "part", p.name)
		}
		return err == nil, nil
	})
}

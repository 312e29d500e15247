// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Command agent is what a cluster of hack/kind runs on each of its nodes in place of a network plugin's and a storage
// provider's daemons: it configures the pods' network, enforces network policies and provisions volumes in directories
// of the node.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

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
		newNetwork(factory, *node, *podNetwork, *cniDir),
		newPolicies(factory, *node),
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

// newPart returns a part whose sync is due at once.
func newPart(name string, sync func(context.Context) error) part {
	p := part{name: name, changed: make(chan struct{}, 1), sync: sync}
	p.notify()
	return p
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
	failures := make(chan error, len(parts))
	var group sync.WaitGroup
	for _, p := range parts {
		group.Go(func() {
			failures <- p.run(ctx)
			cancel()
		})
	}
	group.Wait()
	close(failures)
	var all error
	for err := range failures {
		all = errors.Join(all, err)
	}
	return all
}

// run syncs until ctx ends. A failure ends the agent: its pod is started anew, with a growing pause between.
func (p part) run(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-p.changed:
			if err := p.sync(ctx); err != nil {
				return fmt.Errorf("sync %s: %w", p.name, err)
			}
		}
	}
}

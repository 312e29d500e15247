// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"text/template"

	"github.com/vishvananda/netlink"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// A pod has a network link of its own to its node, not to a bridge: so the node routes what two of its pods say to each
// other, and policies see it.
const networkConfig = `{
  "cniVersion": "0.4.0",
  "name": "kind",
  "plugins": [
    {"type": "ptp", "ipMasq": false, "ipam": {"type": "host-local", "dataDir": "/run/cni-ipam",
      "ranges": [[{"subnet": %q}]], "routes": [{"dst": "0.0.0.0/0"}]}},
    {"type": "portmap", "capabilities": {"portMappings": true}}
  ]
}
`

// Pods are masqueraded only where they leave the cluster: inside, a peer's address says which pod it is.
const masquerade = `
table ip kind-masquerade
delete table ip kind-masquerade
table ip kind-masquerade {
	chain postrouting {
		type nat hook postrouting priority srcnat + 10;
		ip saddr {{.}} ip daddr != {{.}} fib daddr type != local masquerade
	}
}
`

type network struct {
	nodes      corelisters.NodeLister
	node       string
	podNetwork string
	cniDir     string
	configured bool
}

func newNetwork(factory informers.SharedInformerFactory, node, podNetwork, cniDir string) part {
	n := &network{nodes: factory.Core().V1().Nodes().Lister(), node: node, podNetwork: podNetwork, cniDir: cniDir}
	p := newPart("network", n.sync)
	watch(p, factory.Core().V1().Nodes().Informer())
	return p
}

// watch makes the part's sync due at each change of an informer's objects.
func watch(p part, informer cache.SharedIndexInformer) {
	// The one error is that the informer has ended, and it has not begun.
	_, _ = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { p.notify() },
		UpdateFunc: func(any, any) { p.notify() },
		DeleteFunc: func(any) { p.notify() },
	})
}

// sync routes the other nodes' pods to them, and configures the own ones once the node has been given addresses.
func (n *network) sync(ctx context.Context) error {
	nodes, err := n.nodes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	for _, node := range nodes {
		switch {
		case node.Spec.PodCIDR == "":
			// The change that gives it addresses will come by.
		case node.Name == n.node:
			err = n.configure(ctx, node.Spec.PodCIDR)
		default:
			err = route(node)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (n *network) configure(ctx context.Context, podCIDR string) error {
	if n.configured {
		return nil
	}
	rules := new(bytes.Buffer)
	if err := template.Must(template.New("").Parse(masquerade)).Execute(rules, n.podNetwork); err != nil {
		return fmt.Errorf("write rules: %w", err)
	}
	if err := applyRules(ctx, rules.String()); err != nil {
		return err
	}
	// The runtime must not see half a file.
	partial := filepath.Join(n.cniDir, ".kind")
	if err := os.WriteFile(partial, fmt.Appendf(nil, networkConfig, podCIDR), 0o600); err != nil {
		return fmt.Errorf("configure network: %w", err)
	}
	if err := os.Rename(partial, filepath.Join(n.cniDir, "10-kind.conflist")); err != nil {
		return fmt.Errorf("configure network: %w", err)
	}
	n.configured = true // a node's addresses are for good
	return nil
}

func route(node *corev1.Node) error {
	_, pods, err := net.ParseCIDR(node.Spec.PodCIDR)
	if err != nil {
		return fmt.Errorf("read pod addresses of node %s: %w", node.Name, err)
	}
	for _, address := range node.Status.Addresses {
		gateway := net.ParseIP(address.Address)
		if address.Type != corev1.NodeInternalIP || gateway.To4() == nil {
			continue
		}
		if err := netlink.RouteReplace(&netlink.Route{Dst: pods, Gw: gateway}); err != nil {
			return fmt.Errorf("route %s to node %s: %w", pods, node.Name, err)
		}
	}
	return nil
}

// applyRules has nft carry out a script, all of it or nothing.
func applyRules(ctx context.Context, script string) error {
	command := exec.CommandContext(ctx, "nft", "-f", "-")
	command.Stdin = strings.NewReader(script)
	if output, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("apply packet filter rules: %w: %s", err, output)
	}
	return nil
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"sigs.k8s.io/kind/pkg/apis/config/v1alpha4"
	"sigs.k8s.io/kind/pkg/cluster"
	"sigs.k8s.io/kind/pkg/cluster/nodeutils"
	kindexec "sigs.k8s.io/kind/pkg/exec"
)

const (
	// kubeletPatch: kubelets refuse machines with the old control groups unless told otherwise.
	kubeletPatch = "kind: KubeletConfiguration\nfailCgroupV1: false\n"
	// taintPatch has the first node take pods too.
	taintPatch = "kind: InitConfiguration\nnodeRegistration:\n  taints: []\n"
	// metricsServer isn't ready before it has measured twice, which takes longer than all after the nodes. So it is awaited when images
	// have been loaded.
	metricsServer = "Deployment/metrics-server"
)

type clusterOptions struct {
	name, kubeconfig string
	nodes            int
}

func (d *docker) provider() *cluster.Provider {
	return cluster.NewProvider(cluster.ProviderWithDocker())
}

func (d *docker) up(ctx context.Context, c clusterOptions) error {
	begin := time.Now()
	if err := os.MkdirAll(d.dir, 0o700); err != nil {
		return fmt.Errorf("make cache: %w", err)
	}
	if err := d.engine(ctx); err != nil {
		return err
	}
	image, err := d.nodeImage(ctx)
	if err != nil {
		return err
	}
	if err := stage("cluster "+c.name, func() error { return d.create(ctx, c, image) }); err != nil {
		return err
	}
	fmt.Printf("  %-28s %6.1f s\n", "total", time.Since(begin).Seconds())
	fmt.Printf("The kubeconfig of cluster %s is %s\n", c.name, c.kubeconfig)
	return nil
}

// create makes the cluster unless one of its name runs, and waits until its parts do.
func (d *docker) create(ctx context.Context, c clusterOptions, image string) error {
	p := d.provider()
	running, err := d.running(ctx, c)
	if err != nil {
		return err
	}
	if running {
		err = p.ExportKubeConfig(c.name, c.kubeconfig, false)
	} else {
		// What is left of one that was interrupted, or of before the machine was restarted.
		if err := p.Delete(c.name, c.kubeconfig); err != nil {
			return fmt.Errorf("delete what is left of cluster %s: %w", c.name, err)
		}
		config := &v1alpha4.Cluster{
			Networking:           v1alpha4.Networking{KubeProxyMode: v1alpha4.NFTablesProxyMode},
			KubeadmConfigPatches: []string{kubeletPatch, taintPatch},
		}
		for i := range c.nodes {
			role := v1alpha4.WorkerRole
			if i == 0 {
				role = v1alpha4.ControlPlaneRole
			}
			config.Nodes = append(config.Nodes, v1alpha4.Node{Role: role, Image: image})
		}
		// One that fails is kept for its logs.
		err = p.Create(c.name, cluster.CreateWithV1Alpha4Config(config), cluster.CreateWithKubeconfigPath(c.kubeconfig),
			cluster.CreateWithWaitForReady(2*time.Minute), cluster.CreateWithRetain(true))
	}
	if err != nil {
		return err
	}
	return d.settle(ctx, c, metricsServer)
}

// running says whether there is such a cluster, made to its end.
func (d *docker) running(ctx context.Context, c clusterOptions) (bool, error) {
	var counts []int
	for _, which := range []string{"-q", "-aq"} {
		nodes, err := output(exec.CommandContext(ctx, "docker", "ps", which, "--filter", "label=io.x-k8s.kind.cluster="+c.name))
		if err != nil {
			return false, err
		}
		counts = append(counts, len(strings.Fields(nodes)))
	}
	if counts[0] == 0 || counts[0] != counts[1] {
		return false, nil
	}
	joined, err := output(d.kubectl(ctx, c, "get", "nodes", "-o", "name"))
	return err == nil && len(strings.Fields(joined)) == counts[0], nil
}

// kubectl runs one in the cluster, as its admin.
func (d *docker) kubectl(ctx context.Context, c clusterOptions, args ...string) *exec.Cmd {
	args = append([]string{"exec", c.name + "-control-plane", "kubectl", "--kubeconfig=/etc/kubernetes/admin.conf"}, args...)
	return exec.CommandContext(ctx, "docker", args...)
}

// settle waits for all that a cluster comes with but some: until then, calls to services can fail.
func (d *docker) settle(ctx context.Context, c clusterOptions, without ...string) error {
	if err := quietly(d.kubectl(ctx, c, "wait", "node", "--all", "--for=condition=Ready", "--timeout=2m")); err != nil {
		return err
	}
	parts, err := output(d.kubectl(ctx, c, "get", "deployments,daemonsets", "-A", "-o",
		`jsonpath={range .items[*]}{.metadata.namespace}{" "}{.kind}{"/"}{.metadata.name}{"\n"}{end}`))
	if err != nil {
		return err
	}
	for line := range linesOf(parts) {
		if slices.Contains(without, line[1]) {
			continue
		}
		if err := quietly(d.kubectl(ctx, c, "rollout", "status", "-n", line[0], line[1], "--timeout=3m")); err != nil {
			return err
		}
	}
	return nil
}

// load loads images into all nodes, and then waits for what up doesn't.
func (d *docker) load(ctx context.Context, c clusterOptions, files []string) error {
	nodes, err := d.provider().ListInternalNodes(c.name)
	if err != nil {
		return fmt.Errorf("list nodes: %w", err)
	}
	if len(nodes) == 0 {
		return fmt.Errorf("there is no cluster %q: make it with up", c.name)
	}
	for _, file := range files {
		for _, node := range nodes {
			f, err := os.Open(file)
			if err != nil {
				return fmt.Errorf("load image: %w", err)
			}
			err = errors.Join(nodeutils.LoadImageArchive(node, f), f.Close())
			if err != nil {
				return fmt.Errorf("load image %s into %s: %w%s", file, node, err, outputOf(err))
			}
		}
	}
	return d.settle(ctx, c)
}

// outputOf returns what a command of kind's printed, which its error doesn't say.
func outputOf(err error) string {
	if failed := (*kindexec.RunError)(nil); errors.As(err, &failed) && len(failed.Output) > 0 {
		return ": " + strings.TrimSpace(string(failed.Output))
	}
	return ""
}

func (d *docker) down(ctx context.Context, c clusterOptions) error {
	if !answers(ctx) {
		return d.stop(ctx) // at best, nothing runs
	}
	if err := d.provider().Delete(c.name, c.kubeconfig); err != nil {
		return fmt.Errorf("delete cluster %s: %w", c.name, err)
	}
	return d.stop(ctx)
}

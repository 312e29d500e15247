// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/berth-dev/berth/bench/internal/load"
	"github.com/berth-dev/berth/client/connection"
	"github.com/berth-dev/berth/platform/datadir"
)

const (
	// secretLabel is on the Secrets with kubeconfigs of a space, and has its name.
	secretLabel = "berth.dev/kubeconfig"
	// secretSuffix follows the name of the space in the name of the Secret of its admin.
	secretSuffix = "-kubeconfig"
	// serviceSuffix is in the names of Services.
	serviceSuffix = ".svc"
)

var errNoSpaces = errors.New("there are no spaces to use")

// targets finds the spaces.
func (c *config) targets(ctx context.Context) (targets []load.Target, err error) {
	switch {
	case len(c.kubeconfigs) > 0:
		targets, err = c.ofFiles()
	case c.dataDir != "":
		targets, err = c.ofDataDir()
	default:
		targets, err = c.ofHost(ctx)
	}
	if err == nil && len(targets) == 0 {
		err = errNoSpaces
	}
	return targets, err
}

// isWanted reports whether -space has a space, or names none.
func (c *config) isWanted(space string) bool {
	return c.spaces == "" || slices.Contains(strings.Split(c.spaces, ","), space)
}

// target makes a space one of the load. Its clients connect to an address if that isn't empty.
func target(space string, kubeconfig []byte, address string) (load.Target, error) {
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return load.Target{}, fmt.Errorf("read the kubeconfig of space %s: %w", space, err)
	}
	config.WarningHandler = rest.NoWarnings{}
	if address != "" {
		config.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, address)
		}
	}
	return load.Target{Space: space, Config: config}, nil
}

func (c *config) ofFile(space, path string) (load.Target, error) {
	kubeconfig, err := os.ReadFile(path)
	if err != nil {
		return load.Target{}, fmt.Errorf("read the kubeconfig of space %s: %w", space, err)
	}
	return target(space, kubeconfig, c.address)
}

func (c *config) ofFiles() (targets []load.Target, err error) {
	for _, path := range c.kubeconfigs {
		t, err := c.ofFile(strings.TrimSuffix(filepath.Base(path), ".kubeconfig"), path)
		if err != nil {
			return nil, err
		}
		targets = append(targets, t)
	}
	return targets, nil
}

func (c *config) ofDataDir() (targets []load.Target, err error) {
	names, err := datadir.Kubeconfigs(c.dataDir)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if name == datadir.HostName || !c.isWanted(name) {
			continue
		}
		t, err := c.ofFile(name, datadir.Kubeconfig(c.dataDir, name))
		if err != nil {
			return nil, err
		}
		targets = append(targets, t)
	}
	return targets, nil
}

// ofHost finds the kubeconfigs of the spaces' admins in Secrets of the host.
func (c *config) ofHost(ctx context.Context) (targets []load.Target, err error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = c.host
	config, err := clientcmd.NewNonInteractiveDeferredLoadingClientConfig(rules, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("reach the host cluster: %w; name it with -host-kubeconfig, or spaces with -kubeconfig or -data-dir", err)
	}
	host, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("reach the host cluster: %w", err)
	}
	secrets, err := host.CoreV1().Secrets(metav1.NamespaceAll).List(ctx, metav1.ListOptions{LabelSelector: secretLabel})
	if err != nil {
		return nil, fmt.Errorf("find the kubeconfigs of spaces on the host: %w", err)
	}
	ports := map[string]string{}
	for i := range secrets.Items {
		secret := &secrets.Items[i]
		space := secret.Labels[secretLabel]
		if secret.Name != space+secretSuffix || !c.isWanted(space) {
			continue // that of an owner
		}
		kubeconfig, err := connection.Kubeconfig(secret)
		if err != nil {
			return nil, err
		}
		address, err := c.reach(ctx, host, kubeconfig, ports)
		if err != nil {
			return nil, fmt.Errorf("reach space %s: %w", space, err)
		}
		t, err := target(space, kubeconfig, address)
		if err != nil {
			return nil, err
		}
		targets = append(targets, t)
	}
	return targets, nil
}

// reach returns the address at which this machine reaches the server of a kubeconfig; "" if that is the server's own. Ports are those
// of Services that were asked for before.
func (c *config) reach(ctx context.Context, host kubernetes.Interface, kubeconfig []byte, ports map[string]string) (string, error) {
	if c.address != "" {
		return c.address, nil
	}
	config, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		return "", err
	}
	server, err := url.Parse(config.Host)
	if err != nil {
		return "", err
	}
	name, namespace, is := service(server.Hostname())
	if !is {
		return "", nil
	}
	if ports[server.Host] == "" {
		if ports[server.Host], err = nodePort(ctx, host, namespace, name); err != nil {
			return "", err
		}
	}
	return ports[server.Host], nil
}

// service returns the name and the namespace of the Service that a host name is of.
func service(host string) (name, namespace string, is bool) {
	before, after, found := strings.Cut(host, serviceSuffix)
	if !found || after != "" && !strings.HasPrefix(after, ".") {
		return "", "", false
	}
	return strings.Cut(before, ".")
}

// nodePort returns the address of a node that leads to the first port of a Service.
func nodePort(ctx context.Context, host kubernetes.Interface, namespace, name string) (string, error) {
	service, err := host.CoreV1().Services(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return "", fmt.Errorf("find the Service %s/%s: %w", namespace, name, err)
	}
	if len(service.Spec.Ports) == 0 || service.Spec.Ports[0].NodePort == 0 {
		return "", fmt.Errorf("the Service %s/%s has no node port; set service.type=NodePort in the chart, or name an address with -address", namespace, name)
	}
	nodes, err := host.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return "", fmt.Errorf("find a node: %w", err)
	}
	for i := range nodes.Items {
		for _, address := range nodes.Items[i].Status.Addresses {
			if address.Type == corev1.NodeInternalIP {
				return net.JoinHostPort(address.Address, strconv.Itoa(int(service.Spec.Ports[0].NodePort))), nil
			}
		}
	}
	return "", errors.New("no node has an address")
}

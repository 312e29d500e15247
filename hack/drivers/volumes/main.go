// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Command volumes is a CSI driver for the end-to-end tests: volumes and snapshots
// are directories of one node. Upstream's own sidecars and controllers stand
// before it, and the node's kubelet behind.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// name is the driver's, and nodeKey the label by which its volumes name their node.
const (
	name    = "volumes.berth.dev"
	nodeKey = "volumes.berth.dev/node"
)

func main() {
	node := flag.String("node", "", "name of the node that this runs on")
	root := flag.String("root", "/var/local/csi", "directory for volumes and snapshots")
	plugin := flag.String("plugin", "/var/lib/kubelet/plugins/"+name, "the driver's directory, the same here and on the node")
	registry := flag.String("registry", "/var/lib/kubelet/plugins_registry", "where the kubelet looks for drivers")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
	err := serve(ctx, *node, *root, *plugin, *registry)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "volumes:", err)
		os.Exit(1)
	}
}

// serve ends with its context.
func serve(ctx context.Context, node, root, plugin, registry string) error {
	if node == "" {
		return errors.New("-node: name the node that this runs on")
	}
	store, err := openStore(root)
	if err != nil {
		return err
	}
	endpoint := filepath.Join(plugin, "csi.sock")
	driver, failed := grpc.NewServer(), make(chan error, 2)
	csi.RegisterIdentityServer(driver, identity{})
	csi.RegisterControllerServer(driver, &controller{store: store, node: node})
	csi.RegisterNodeServer(driver, &nodeServer{store: store, node: node})
	defer driver.Stop()
	if err := listen(driver, endpoint, failed); err != nil {
		return err
	}
	registrar := grpc.NewServer()
	registration.RegisterRegistrationServer(registrar, &registrationServer{endpoint: endpoint, failed: failed})
	defer registrar.Stop()
	if err := listen(registrar, filepath.Join(registry, name+"-reg.sock"), failed); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-failed:
		return err
	}
}

// listen serves at a socket, which an earlier process may have left.
func listen(server *grpc.Server, path string, failed chan<- error) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o750); err != nil {
		return fmt.Errorf("listen at %s: %w", path, err)
	}
	if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("listen at %s: %w", path, err)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("listen at %s: %w", path, err)
	}
	go func() { failed <- server.Serve(listener) }()
	return nil
}

// registrationServer introduces the driver to the kubelet.
type registrationServer struct {
	registration.UnimplementedRegistrationServer

	endpoint string
	failed   chan<- error
}

func (r *registrationServer) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{Type: registration.CSIPlugin, Name: name, Endpoint: r.endpoint, SupportedVersions: []string{"1.0.0"}}, nil
}

func (r *registrationServer) NotifyRegistrationStatus(_ context.Context, status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if !status.PluginRegistered {
		r.failed <- fmt.Errorf("the kubelet refuses the driver: %s", status.Error)
	}
	return &registration.RegistrationStatusResponse{}, nil
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
)

// parts are what runs beside the control plane, as clients of it.
type parts struct {
	cancel context.CancelFunc
	ended  chan struct{} // closed when all have ended
	err    error         // why, unless by stop; set before ended is closed
}

// startParts starts the parts of a host with these nodes on the API that config
// reaches with all rights. It returns when the nodes are Ready, pods are
// scheduled and claims served; ctx bounds that only. On error all has been
// stopped.
func startParts(ctx context.Context, config *rest.Config, nodes []node) (*parts, error) {
	all := map[string]func(context.Context, *rest.Config, func()) error{
		"kubelets": func(ctx context.Context, config *rest.Config, ready func()) error {
			return runKubelets(ctx, config, nodes, ready)
		},
		"provisioner": func(ctx context.Context, config *rest.Config, ready func()) error {
			return runProvisioner(ctx, config, nodes, ready)
		},
		"scheduler": runScheduler,
	}
	ready := make(chan struct{}, len(all))
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	group, running := errgroup.WithContext(running)
	for name, run := range all {
		group.Go(func() error {
			err := run(running, clientConfig(config, name), func() { ready <- struct{}{} })
			if running.Err() != nil {
				return nil // told to stop, or another part has said what is wrong
			}
			if err == nil {
				err = errors.New("ended by itself")
			}
			return fmt.Errorf("run simulated %s: %w", name, err)
		})
	}
	p := &parts{cancel: cancel, ended: make(chan struct{})}
	go func() {
		defer close(p.ended)
		p.err = group.Wait()
	}()
	for range all {
		select {
		case <-ready:
		case <-p.ended:
			return nil, p.err
		case <-ctx.Done():
			p.stop()
			return nil, fmt.Errorf("wait for nodes, scheduler and volumes: %w", context.Cause(ctx))
		}
	}
	return p, nil
}

// stop ends all parts and waits for them.
func (p *parts) stop() {
	p.cancel()
	<-p.ended
}

// clientConfig returns config for one part: under its own name, without a limit
// of requests on the client's side, and in protobuf.
func clientConfig(config *rest.Config, name string) *rest.Config {
	config = rest.AddUserAgent(rest.CopyConfig(config), "berth-host-"+name)
	config.QPS = -1
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	return config
}

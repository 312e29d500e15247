// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"sync"

	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/vcluster"
)

// defaultNodes is enough to see pods spread.
const defaultNodes = 3

// Options says what one host cluster is.
type Options struct {
	// Dir holds the cluster's state. Started again on the same Dir, a host has
	// the same nodes, and its pods run on.
	Dir string
	// Endpoint is the https URL under which clients reach the API. It goes
	// into kubeconfigs.
	Endpoint string
	// ServingCA is the PEM bundle that verifies Endpoint.
	ServingCA []byte
	// Nodes is how many nodes are simulated, 1 to 254. Default 3. Those of an
	// earlier start that are too many are deleted.
	Nodes int
	// Granted has the rights of users whom the platform knows, beside those of RBAC. Nil means none.
	Granted *access.Source
	// Logger is given to whatever logs contextually. Default: klog's own.
	Logger klog.Logger
}

// complete checks o and returns it with defaults filled in.
func (o Options) complete() (Options, error) {
	if o.Nodes == 0 {
		o.Nodes = defaultNodes
	}
	if o.Nodes < 0 || o.Nodes > maxNodes {
		return o, fmt.Errorf("%d nodes, want 1 to %d", o.Nodes, maxNodes)
	}
	if o.Logger.GetSink() == nil {
		o.Logger = klog.Background()
	}
	o.Logger = o.Logger.WithName("host")
	return o, nil
}

// Cluster is a running host cluster. Its methods may be called concurrently.
type Cluster struct {
	controlPlane *vcluster.ControlPlane
	parts        *parts

	requestStop func()
	stopped     chan struct{} // closed by requestStop
	done        chan struct{}
	// Set before done is closed.
	err     error // why the cluster has ended by itself
	stopErr error // what went wrong in stopping it
}

// Start starts a host cluster and returns when its API is served, its
// controllers and its scheduler run, and its nodes are Ready. ctx bounds the
// starting only. On error everything that was started has been stopped.
func Start(ctx context.Context, o Options) (*Cluster, error) {
	o, err := o.complete()
	if err != nil {
		return nil, fmt.Errorf("start host: %w", err)
	}
	ctx = klog.NewContext(ctx, o.Logger)
	controlPlane, err := vcluster.Start(ctx, vcluster.Config{
		Name:        "host",
		Dir:         o.Dir,
		Endpoint:    o.Endpoint,
		ServingCA:   o.ServingCA,
		Controllers: vcluster.HostControllers(),
		Granted:     o.Granted,
		Logger:      o.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("start host: %w", err)
	}
	parts, err := startParts(ctx, controlPlane.Loopback(), newNodes(o.Nodes))
	if err != nil {
		return nil, fmt.Errorf("start host: %w", errors.Join(err, controlPlane.Stop(context.WithoutCancel(ctx))))
	}
	stopped := make(chan struct{})
	c := &Cluster{
		controlPlane: controlPlane,
		parts:        parts,
		requestStop:  sync.OnceFunc(func() { close(stopped) }),
		stopped:      stopped,
		done:         make(chan struct{}),
	}
	go c.supervise(context.WithoutCancel(ctx))
	return c, nil
}

// supervise waits until the cluster is to stop or one half of it ends, and
// stops the rest: clients first, so that none sees the API go.
func (c *Cluster) supervise(ctx context.Context) {
	defer close(c.done)
	select {
	case <-c.stopped:
	case <-c.controlPlane.Done():
		c.err = errors.Join(errors.New("host's control plane has ended"), c.controlPlane.Err())
	case <-c.parts.ended:
		c.err = errors.Join(errors.New("host has ended"), c.parts.err)
	}
	c.parts.stop()
	if err := c.controlPlane.Stop(ctx); err != nil {
		c.stopErr = fmt.Errorf("stop host: %w", err)
	}
}

// Handler serves the whole API. Clients prove themselves by certificates of the
// host's CA or by tokens; a listener need only request certificates.
func (c *Cluster) Handler() http.Handler { return c.controlPlane.Handler() }

// Config returns a client configuration with all rights that calls the API in
// process.
func (c *Cluster) Config() *rest.Config { return c.controlPlane.Loopback() }

// ClientKubeconfig issues a client certificate for user in groups and returns a
// kubeconfig that embeds it.
func (c *Cluster) ClientKubeconfig(user string, groups []string) ([]byte, error) {
	return c.controlPlane.ClientKubeconfig(user, groups)
}

// Done is closed when the cluster has ended, by Stop or by itself.
func (c *Cluster) Done() <-chan struct{} { return c.done }

// Err tells, once Done is closed, why the cluster ended by itself. It is nil
// after Stop, and until then.
func (c *Cluster) Err() error {
	select {
	case <-c.done:
		return c.err
	default:
		return nil
	}
}

// Stop ends nodes, scheduler and volumes, then the control plane. It returns
// when all have ended, or with an error when ctx ends first; stopping goes on
// then. It may be called more than once.
func (c *Cluster) Stop(ctx context.Context) error {
	c.requestStop()
	select {
	case <-c.done:
		return c.stopErr
	case <-ctx.Done():
		return fmt.Errorf("stop host: %w", context.Cause(ctx))
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"k8s.io/client-go/informers"
	"k8s.io/client-go/rest"
)

// ControlPlane is a running control plane. Its methods may be called
// concurrently.
type ControlPlane struct{}

// Start starts a control plane and returns when its /readyz is ok and its
// controllers run. ctx bounds the starting only. On error everything that was
// started has been stopped.
func Start(ctx context.Context, c Config) (*ControlPlane, error) {
	c, err := c.complete()
	if err != nil {
		return nil, fmt.Errorf("start control plane: %w", err)
	}
	return nil, errors.New("not built")
}

// Handler serves the whole API: authentication by client certificates of the
// space's CA and by service-account tokens, RBAC, admission. A client
// certificate is taken from the request's TLS state and verified here, so a
// listener need only request one.
func (p *ControlPlane) Handler() http.Handler { return nil }

// Loopback returns a client configuration with all rights that calls the API
// in process.
func (p *ControlPlane) Loopback() *rest.Config { return nil }

// Informers returns the informers that the API server and its controllers
// share. Callers may ask for further ones and then call Start with their own
// channel.
func (p *ControlPlane) Informers() informers.SharedInformerFactory { return nil }

// ClientKubeconfig issues a client certificate for user in groups and returns
// a kubeconfig that embeds it.
func (p *ControlPlane) ClientKubeconfig(user string, groups []string) ([]byte, error) {
	return nil, errors.New("not built")
}

// Done is closed when the control plane has ended, by Stop or by itself.
func (p *ControlPlane) Done() <-chan struct{} { return nil }

// Err tells, once Done is closed, why the control plane ended by itself. It is
// nil after Stop.
func (p *ControlPlane) Err() error { return nil }

// Stop ends controllers, informers and the API server, in this order, and
// closes the store. It returns when all have ended, or with an error when ctx
// ends first. It may be called more than once.
func (p *ControlPlane) Stop(ctx context.Context) error { return nil }

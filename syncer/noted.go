// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// noted tells a syncer of what its space writes to the host.
type noted struct {
	client.Client
	syncer *Syncer
}

func (n *noted) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	return n.wrote(n.Client.Create(ctx, obj, opts...))
}

func (n *noted) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	return n.wrote(n.Client.Update(ctx, obj, opts...))
}

func (n *noted) wrote(err error) error {
	if err == nil {
		n.syncer.wrote()
	}
	return err
}

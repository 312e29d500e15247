// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/translate"
)

// addresses give the Services of all spaces what the host allocates: cluster IPs, node ports, and names. They write as the spaces'
// own accounts. They are safe for concurrent use.
type addresses struct {
	host     *Host
	requests *fairSlots
	running  sync.Map // accounts of the spaces that are synced, by name: each an *account
}

func newAddresses(host *Host) *addresses {
	return &addresses{host: host, requests: newHostSlots()}
}

// client acts as the space's own account, as fast as its limits and the other spaces let it.
func (a *addresses) client(space translate.Space, limits *bounds.Account) (client.Client, error) {
	return newAccountClient(a.host, a.requests, space, limits)
}

// use has what is reserved for a space written as the account that its syncer writes as, until end.
func (a *addresses) use(space translate.Space, as *account) (end func()) {
	a.running.Store(space.Name, as)
	return func() { a.running.Delete(space.Name) }
}

// as is the space's own account: its syncer's, if it has one, so that the syncer
// knows of the write.
func (a *addresses) as(space translate.Space) (*account, error) {
	if running, ok := a.running.Load(space.Name); ok {
		return running.(*account), nil
	}
	c, err := a.client(space, nil)
	if err != nil {
		return nil, err
	}
	return newAccount(newWriter(c, a.host)), nil
}

// account writes to the host as a space's account. It exposes Services in an order that lets nothing out of the space.
type account struct {
	*writer

	// exposing is locked while an exposed service is made, and read-locked while
	// services come or go otherwise, see [account.createExposed].
	exposing sync.RWMutex
}

func newAccount(w *writer) *account { return &account{writer: w} }

func (a *account) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	if service, ok := obj.(*corev1.Service); ok {
		if translate.Exposed(&service.Spec) {
			return a.createExposed(ctx, service, opts...)
		}
		a.exposing.RLock()
		defer a.exposing.RUnlock()
	}
	return a.writer.Create(ctx, obj, opts...)
}

func (a *account) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	if service, ok := obj.(*corev1.Service); ok && translate.Exposed(&service.Spec) {
		return a.updateExposed(ctx, service, opts...)
	}
	return a.writer.Update(ctx, obj, opts...)
}

func (a *account) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	if _, ok := obj.(*corev1.Service); ok {
		a.exposing.RLock()
		defer a.exposing.RUnlock()
	}
	return a.writer.Delete(ctx, obj, opts...)
}

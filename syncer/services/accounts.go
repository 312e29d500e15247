// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/translate"
)

// Addresses gives the Services of all spaces what the host allocates: cluster IPs, node ports, and names. It writes
// with the spaces' own accounts. It is safe for concurrent use.
type Addresses struct {
	host     *hostcache.Host
	requests *engine.Slots
	running  sync.Map // maps names of running spaces to their *account
}

// NewAddresses returns the addresses of a host.
func NewAddresses(host *hostcache.Host) *Addresses {
	return &Addresses{host: host, requests: engine.NewSlots()}
}

// Client returns a client that acts as the space's own account, within its limits.
func (a *Addresses) Client(space translate.Space, limits *bounds.Account) (client.Client, error) {
	return engine.NewClient(a.host, a.requests, space, limits)
}

// Use makes reservations for a space use the account of its syncer, until end is called.
func (a *Addresses) Use(space translate.Space, as *Account) (end func()) {
	a.running.Store(space.Name, as)
	return func() { a.running.Delete(space.Name) }
}

// as returns the space's account: that of its syncer, if it has one, so that the syncer knows of the write.
func (a *Addresses) as(space translate.Space) (*Account, error) {
	if running, ok := a.running.Load(space.Name); ok {
		return running.(*Account), nil
	}
	c, err := a.Client(space, nil)
	if err != nil {
		return nil, err
	}
	return NewAccount(engine.NewWriter(c, a.host)), nil
}

// Account writes to the host as a space's account. It exposes Services in a safe order, so that they never route out of
// the space.
type Account struct {
	*engine.Writer

	// exposing is locked while an exposed service is created, and read-locked for other writes of services, see
	// [Account.createExposed].
	exposing sync.RWMutex
}

// NewAccount returns an account that uses a writer.
func NewAccount(w *engine.Writer) *Account { return &Account{Writer: w} }

// Create creates an object on the host. A Service that is exposed from the start gets no endpoints that its tenant
// wrote.
func (a *Account) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	if service, ok := obj.(*corev1.Service); ok {
		if translate.Exposed(&service.Spec) {
			return a.createExposed(ctx, service, opts...)
		}
		a.exposing.RLock()
		defer a.exposing.RUnlock()
	}
	return a.Writer.Create(ctx, obj, opts...)
}

// Update updates an object on the host. When a Service becomes exposed, the endpoints that its tenant wrote are deleted
// first.
func (a *Account) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	if service, ok := obj.(*corev1.Service); ok && translate.Exposed(&service.Spec) {
		return a.updateExposed(ctx, service, opts...)
	}
	return a.Writer.Update(ctx, obj, opts...)
}

// Delete deletes an object on the host.
func (a *Account) Delete(ctx context.Context, obj client.Object, opts ...client.DeleteOption) error {
	if _, ok := obj.(*corev1.Service); ok {
		a.exposing.RLock()
		defer a.exposing.RUnlock()
	}
	return a.Writer.Delete(ctx, obj, opts...)
}

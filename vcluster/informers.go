// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
)

// informerResync is upstream's default of the controller manager's
// --min-resync-period.
const informerResync = 12 * time.Hour

// ownedInformers are informers whose lives end with the control plane's,
// whoever starts them: the API server, its controllers and the syncer share
// them, and none may end them for the others.
type ownedInformers struct {
	informers.SharedInformerFactory
	ctx    context.Context
	cancel context.CancelFunc
}

func newInformers(client kubernetes.Interface) *ownedInformers {
	f := &ownedInformers{SharedInformerFactory: informers.NewSharedInformerFactoryWithOptions(
		client, informerResync, informers.WithTransform(trimManagedFields))}
	f.ctx, f.cancel = context.WithCancel(context.Background())
	return f
}

// Start starts the informers asked for so far. It does not heed the channel.
func (f *ownedInformers) Start(<-chan struct{}) {
	f.SharedInformerFactory.StartWithContext(f.ctx)
}

// StartWithContext starts the informers asked for so far. It does not heed the
// context's end.
func (f *ownedInformers) StartWithContext(context.Context) {
	f.SharedInformerFactory.StartWithContext(f.ctx)
}

// Shutdown does nothing: see stop.
func (f *ownedInformers) Shutdown() {}

// stop ends all informers and waits for them.
func (f *ownedInformers) stop() {
	f.cancel()
	f.SharedInformerFactory.Shutdown()
}

// trimManagedFields drops what makes up half of many objects, as upstream does
// in its own informers.
func trimManagedFields(obj any) (any, error) {
	if accessor, err := meta.Accessor(obj); err == nil && accessor.GetManagedFields() != nil {
		accessor.SetManagedFields(nil)
	}
	return obj, nil
}

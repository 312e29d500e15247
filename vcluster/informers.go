// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	clientv3 "go.etcd.io/etcd/client/v3"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/informer"
)

// ownedInformers are the informers that the API server and the syncer share while the control plane runs. Controllers
// have their own views of them.
type ownedInformers struct {
	*informer.View
	pool *informer.Pool
}

func newInformers(client kubernetes.Interface, store *clientv3.Client, account *bounds.Account, logger klog.Logger) *ownedInformers {
	pool := informer.NewPool(client, informer.NewFeed(store, logger), account, logger)
	return &ownedInformers{pool.View(), pool}
}

// stop stops all informers, including those of controllers, and waits for them.
func (f *ownedInformers) stop() { f.pool.Stop() }

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

// ownedInformers are the informers that the API server and the syncer share for
// as long as the control plane lives. Controllers have views of their own.
type ownedInformers struct {
	*informer.View
	pool *informer.Pool
}

func newInformers(client kubernetes.Interface, store *clientv3.Client, account *bounds.Account, logger klog.Logger) *ownedInformers {
	pool := informer.NewPool(client, informer.NewFeed(store, logger), account, logger)
	return &ownedInformers{pool.View(), pool}
}

// stop ends all informers, the controllers' too, and waits for them.
func (f *ownedInformers) stop() { f.pool.Stop() }

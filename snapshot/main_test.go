// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot_test

import "go.etcd.io/etcd/client/v3/kubernetes"

var (
	putOptions = kubernetes.PutOptions{}
	getOptions = kubernetes.GetOptions{}
)

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"maps"

	"k8s.io/apimachinery/pkg/runtime/schema"
	controlplaneapiserver "k8s.io/kubernetes/pkg/controlplane/apiserver"
)

// apiPriorities orders API groups, and their versions, in discovery, like kube-apiserver, whose own table
// (cmd/kube-apiserver/app/aggregator.go) is not exported. A group version that is missing here has no APIService and
// can't be discovered; a test compares the tables.
func apiPriorities() map[schema.GroupVersion]controlplaneapiserver.APIServicePriority {
	p := controlplaneapiserver.DefaultGenericAPIServicePriorities()
	maps.Copy(p, map[schema.GroupVersion]controlplaneapiserver.APIServicePriority{
		{Group: "apps", Version: "v1"}:                    {Group: 17800, Version: 15},
		{Group: "autoscaling", Version: "v1"}:             {Group: 17500, Version: 15},
		{Group: "autoscaling", Version: "v2"}:             {Group: 17500, Version: 30},
		{Group: "batch", Version: "v1"}:                   {Group: 17400, Version: 15},
		{Group: "networking.k8s.io", Version: "v1"}:       {Group: 17200, Version: 15},
		{Group: "policy", Version: "v1"}:                  {Group: 17100, Version: 15},
		{Group: "storage.k8s.io", Version: "v1"}:          {Group: 16800, Version: 15},
		{Group: "scheduling.k8s.io", Version: "v1"}:       {Group: 16600, Version: 15},
		{Group: "node.k8s.io", Version: "v1"}:             {Group: 16300, Version: 15},
		{Group: "resource.k8s.io", Version: "v1"}:         {Group: 16200, Version: 21},
		{Group: "metrics.k8s.io", Version: "v1beta1"}:     {Group: 100, Version: 100}, // if it is offered; as in metrics-server
		{Group: "access.berth.dev", Version: "v1alpha1"}:  {Group: 100, Version: 100},
		{Group: "tenancy.berth.dev", Version: "v1alpha1"}: {Group: 100, Version: 100}, // if it is offered
	})
	return p
}

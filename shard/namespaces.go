// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	corev1listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/berth-dev/berth/access"
)

// MaxNamespaceNames is the maximum number of names in [Namespaces], as in the status of a Space.
const MaxNamespaceNames = 500

// Namespaces are the namespaces of a space without those that Kubernetes itself creates (O8).
type Namespaces struct {
	Count int32 `json:"count"`
	// Names are the first names in alphabetical order, at most [MaxNamespaceNames].
	Names []string `json:"names"`
}

// isTenants reports whether a namespace is none of those that each space begins with.
func isTenants(namespace string) bool { return access.IsTenants(namespace) }

// namespaces follows the namespaces of a running space.
type namespaces struct {
	lister corev1listers.NamespaceLister
	synced cache.InformerSynced
}

// followNamespaces calls changed when a namespace of a tenant is created or deleted. changed must not block.
func followNamespaces(of informers.SharedInformerFactory, changed func()) (*namespaces, error) {
	shared := of.Core().V1().Namespaces()
	tell := func(o any) {
		if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = gone.Obj
		}
		if namespace, ok := o.(*corev1.Namespace); !ok || isTenants(namespace.Name) {
			changed()
		}
	}
	handled, err := shared.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: tell, DeleteFunc: tell})
	if err != nil {
		return nil, err
	}
	return &namespaces{shared.Lister(), handled.HasSynced}, nil
}

// read returns nil if the namespaces are not known yet.
func (n *namespaces) read() *Namespaces {
	if n == nil || !n.synced() {
		return nil
	}
	all, err := n.lister.List(labels.Everything())
	if err != nil {
		return nil
	}
	names := make([]string, 0, len(all))
	for _, namespace := range all {
		if isTenants(namespace.Name) {
			names = append(names, namespace.Name)
		}
	}
	slices.Sort(names)
	return &Namespaces{Count: int32(len(names)), Names: names[:min(len(names), MaxNamespaceNames)]}
}

// Namespaces returns the namespaces of a space; nil if the space is not awake.
func (s *Shard) Namespaces(name string) *Namespaces {
	space := s.Space(name)
	if space == nil {
		return nil
	}
	return space.namespaces.read()
}

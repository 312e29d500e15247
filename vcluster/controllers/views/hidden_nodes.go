// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package views

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
)

// HiddenNodes is a view for the controllers of a space whose pods run on
// nodes that it does not have (N1). Some controllers (endpoint slices) leave a
// pod out whose node they cannot find: to them, every node that is asked for by
// name exists, and is bare. Lists hold the virtual nodes, if there are any.
type HiddenNodes struct{ coreinformers.Interface }

// Nodes returns an informer whose lister finds any node that is asked for by name.
func (v HiddenNodes) Nodes() coreinformers.TypedNodeInformer {
	return coreinformers.ToTypedNodeInformer(hiddenNodeInformer{v.Interface.Nodes()})
}

type hiddenNodeInformer struct{ coreinformers.NodeInformer }

func (i hiddenNodeInformer) Lister() corelisters.NodeLister {
	return hiddenNodeLister{i.NodeInformer.Lister()}
}

type hiddenNodeLister struct{ corelisters.NodeLister }

func (l hiddenNodeLister) Get(name string) (*corev1.Node, error) {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/core"
	coreinformers "k8s.io/client-go/informers/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
)

// hiddenNodes is a factory for the controllers of a space whose pods run on
// nodes that it does not have (N1). Some controllers (endpoint slices) leave a
// pod out whose node they cannot find: to them, every node that is asked for by
// name exists, and is bare. Lists hold the stand-ins, if there are any.
type hiddenNodes struct {
	informers.SharedInformerFactory
}

func (f hiddenNodes) Core() core.Interface { return hiddenCore{f.SharedInformerFactory.Core()} }

type hiddenCore struct{ core.Interface }

func (c hiddenCore) V1() coreinformers.Interface { return hiddenCoreV1{c.Interface.V1()} }

type hiddenCoreV1 struct{ coreinformers.Interface }

func (c hiddenCoreV1) Nodes() coreinformers.NodeInformer {
	return hiddenNodeInformer{c.Interface.Nodes()}
}

type hiddenNodeInformer struct{ coreinformers.NodeInformer }

func (i hiddenNodeInformer) Lister() corelisters.NodeLister {
	return hiddenNodeLister{i.NodeInformer.Lister()}
}

type hiddenNodeLister struct{ corelisters.NodeLister }

func (l hiddenNodeLister) Get(name string) (*corev1.Node, error) {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/core"
	coreinformers "k8s.io/client-go/informers/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// coreView is a factory whose informers of core/v1 a controller sees as view has them.
type coreView struct {
	informers.SharedInformerFactory
	view func(coreinformers.Interface) coreinformers.Interface
}

func (f coreView) Core() core.Interface { return coreGroupView{f.SharedInformerFactory.Core(), f.view} }

type coreGroupView struct {
	core.Interface
	view func(coreinformers.Interface) coreinformers.Interface
}

func (g coreGroupView) V1() coreinformers.Interface { return g.view(g.Interface.V1()) }

// podLists is a view in which list makes all lists of a namespace's pods.
type podLists struct {
	coreinformers.Interface
	list listPods
}

type listPods func(corelisters.PodNamespaceLister, labels.Selector) ([]*corev1.Pod, error)

func (v podLists) Pods() coreinformers.PodInformer {
	return podListInformer{v.Interface.Pods(), v.list}
}

type podListInformer struct {
	coreinformers.PodInformer
	list listPods
}

func (i podListInformer) Lister() corelisters.PodLister {
	return podLister{i.PodInformer.Lister(), i.list}
}

type podLister struct {
	corelisters.PodLister
	list listPods
}

func (l podLister) Pods(namespace string) corelisters.PodNamespaceLister {
	return podNamespaceLister{l.PodLister.Pods(namespace), l.list}
}

type podNamespaceLister struct {
	corelisters.PodNamespaceLister
	list listPods
}

func (l podNamespaceLister) List(selector labels.Selector) ([]*corev1.Pod, error) {
	return l.list(l.PodNamespaceLister, selector)
}

// podIndexes is a view in which index gives the index of pods.
type podIndexes struct {
	coreinformers.Interface
	index indexView
}

type indexView func(cache.Indexer) cache.Indexer

func (v podIndexes) Pods() coreinformers.PodInformer {
	return podIndexInformer{v.Interface.Pods(), v.index}
}

type podIndexInformer struct {
	coreinformers.PodInformer
	index indexView
}

func (i podIndexInformer) Informer() cache.SharedIndexInformer {
	return indexInformer{i.PodInformer.Informer(), i.index}
}

type indexInformer struct {
	cache.SharedIndexInformer
	index indexView
}

func (i indexInformer) GetIndexer() cache.Indexer { return i.index(i.SharedIndexInformer.GetIndexer()) }

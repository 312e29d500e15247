// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package views

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/core"
	coreinformers "k8s.io/client-go/informers/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
)

// CoreView is a factory whose informers of core/v1 a controller sees as view has them.
type CoreView struct {
	informers.SharedInformerFactory
	View func(coreinformers.Interface) coreinformers.Interface
}

// Core returns the group as the controller sees it.
func (f CoreView) Core() core.Interface { return coreGroupView{f.SharedInformerFactory.Core(), f.View} }

type coreGroupView struct {
	core.Interface
	view func(coreinformers.Interface) coreinformers.Interface
}

func (g coreGroupView) V1() coreinformers.Interface { return g.view(g.Interface.V1()) }

// podView is a view of pods in which list, if set, makes all lists of a namespace's, and index, if set, gives the index of all.
type podView struct {
	coreinformers.Interface
	list  func(corelisters.PodNamespaceLister, labels.Selector) ([]*corev1.Pod, error)
	index func(cache.Indexer) cache.Indexer
}

func (v podView) Pods() coreinformers.TypedPodInformer {
	return coreinformers.ToTypedPodInformer(viewedPods{v.Interface.Pods(), v})
}

type viewedPods struct {
	coreinformers.PodInformer
	view podView
}

func (p viewedPods) Lister() corelisters.PodLister {
	if p.view.list == nil {
		return p.PodInformer.Lister()
	}
	return viewedPodLister{p.PodInformer.Lister(), p.view}
}

func (p viewedPods) Informer() cache.SharedIndexInformer {
	if p.view.index == nil {
		return p.PodInformer.Informer()
	}
	return indexInformer{p.PodInformer.Informer(), p.view.index}
}

type viewedPodLister struct {
	corelisters.PodLister
	view podView
}

func (l viewedPodLister) Pods(namespace string) corelisters.PodNamespaceLister {
	return viewedNamespaceLister{l.PodLister.Pods(namespace), l.view}
}

type viewedNamespaceLister struct {
	corelisters.PodNamespaceLister
	view podView
}

func (l viewedNamespaceLister) List(selector labels.Selector) ([]*corev1.Pod, error) {
	return l.view.list(l.PodNamespaceLister, selector)
}

// indexInformer is an informer whose index is seen as view has it.
type indexInformer struct {
	cache.SharedIndexInformer
	view func(cache.Indexer) cache.Indexer
}

func (i indexInformer) GetIndexer() cache.Indexer { return i.view(i.SharedIndexInformer.GetIndexer()) }

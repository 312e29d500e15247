// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/informers/admissionregistration"
	"k8s.io/client-go/informers/apiserverinternal"
	"k8s.io/client-go/informers/apps"
	"k8s.io/client-go/informers/autoscaling"
	"k8s.io/client-go/informers/batch"
	"k8s.io/client-go/informers/certificates"
	"k8s.io/client-go/informers/coordination"
	"k8s.io/client-go/informers/core"
	"k8s.io/client-go/informers/discovery"
	"k8s.io/client-go/informers/events"
	"k8s.io/client-go/informers/extensions"
	"k8s.io/client-go/informers/flowcontrol"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/informers/networking"
	"k8s.io/client-go/informers/node"
	"k8s.io/client-go/informers/policy"
	"k8s.io/client-go/informers/rbac"
	"k8s.io/client-go/informers/resource"
	"k8s.io/client-go/informers/scheduling"
	"k8s.io/client-go/informers/storage"
	"k8s.io/client-go/informers/storagemigration"
	"k8s.io/client-go/tools/cache"
)

// heldInformers are shared informers whose events to handlers are held back
// until they are released. Upstream's controllers are written for informers
// that start when all controllers are built: their constructors add handlers
// before they have set every field that a handler reads. The informers of an
// API server that runs have long started.
type heldInformers struct {
	informers.SharedInformerFactory
	released chan struct{}
}

func holdInformers(f informers.SharedInformerFactory) *heldInformers {
	return &heldInformers{SharedInformerFactory: f, released: make(chan struct{})}
}

// release lets events through. Call it once.
func (f *heldInformers) release() { close(f.released) }

// InformerFor is what the groups below, and all that they offer, come down to.
func (f *heldInformers) InformerFor(obj runtime.Object, newFunc internalinterfaces.NewInformerFunc) cache.SharedIndexInformer {
	return heldInformer{f.SharedInformerFactory.InformerFor(obj, newFunc), f.released}
}

func (f *heldInformers) ForResource(gvr schema.GroupVersionResource) (informers.GenericInformer, error) {
	informer, err := f.SharedInformerFactory.ForResource(gvr)
	if err != nil {
		return nil, err
	}
	return heldGenericInformer{informer, f.released}, nil
}

type heldGenericInformer struct {
	informers.GenericInformer
	released <-chan struct{}
}

func (i heldGenericInformer) Informer() cache.SharedIndexInformer {
	return heldInformer{i.GenericInformer.Informer(), i.released}
}

type heldInformer struct {
	cache.SharedIndexInformer
	released <-chan struct{}
}

func (i heldInformer) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandler(heldHandler{h, i.released})
}

func (i heldInformer) AddEventHandlerWithResyncPeriod(
	h cache.ResourceEventHandler, resync time.Duration,
) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandlerWithResyncPeriod(heldHandler{h, i.released}, resync)
}

func (i heldInformer) AddEventHandlerWithOptions(
	h cache.ResourceEventHandler, o cache.HandlerOptions,
) (cache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandlerWithOptions(heldHandler{h, i.released}, o)
}

// heldHandler keeps an informer's queue of one handler waiting; others go on.
type heldHandler struct {
	next     cache.ResourceEventHandler
	released <-chan struct{}
}

func (h heldHandler) OnAdd(obj any, initial bool) {
	<-h.released
	h.next.OnAdd(obj, initial)
}

func (h heldHandler) OnUpdate(old, obj any) {
	<-h.released
	h.next.OnUpdate(old, obj)
}

func (h heldHandler) OnDelete(obj any) {
	<-h.released
	h.next.OnDelete(obj)
}

// The groups, as upstream's factory makes them.

func (f *heldInformers) Admissionregistration() admissionregistration.Interface {
	return admissionregistration.New(f, metav1.NamespaceAll, nil)
}

func (f *heldInformers) Internal() apiserverinternal.Interface {
	return apiserverinternal.New(f, metav1.NamespaceAll, nil)
}

func (f *heldInformers) Apps() apps.Interface { return apps.New(f, metav1.NamespaceAll, nil) }

func (f *heldInformers) Autoscaling() autoscaling.Interface {
	return autoscaling.New(f, metav1.NamespaceAll, nil)
}

func (f *heldInformers) Batch() batch.Interface { return batch.New(f, metav1.NamespaceAll, nil) }

func (f *heldInformers) Certificates() certificates.Interface {
	return certificates.New(f, metav1.NamespaceAll, nil)
}

func (f *heldInformers) Coordination() coordination.Interface {
	return coordination.New(f, metav1.NamespaceAll, nil)
}

func (f *heldInformers) Core() core.Interface { return core.New(f, metav1.NamespaceAll, nil) }

func (f *heldInformers) Discovery() discovery.Interface {
	return discovery.New(f, metav1.NamespaceAll, nil)
}

func (f *heldInformers) Events() events.Interface { return events.New(f, metav1.NamespaceAll, nil) }

func (f *heldInformers) Extensions() extensions.Interface {
	return extensions.New(f, metav1.NamespaceAll, nil)
}

func (f *heldInformers) Flowcontrol() flowcontrol.Interface {
	return flowcontrol.New(f, metav1.NamespaceAll, nil)
}

func (f *heldInformers) Networking() networking.Interface {
	return networking.New(f, metav1.NamespaceAll, nil)
}

func (f *heldInformers) Node() node.Interface { return node.New(f, metav1.NamespaceAll, nil) }

func (f *heldInformers) Policy() policy.Interface { return policy.New(f, metav1.NamespaceAll, nil) }

func (f *heldInformers) Rbac() rbac.Interface { return rbac.New(f, metav1.NamespaceAll, nil) }

func (f *heldInformers) Resource() resource.Interface {
	return resource.New(f, metav1.NamespaceAll, nil)
}

func (f *heldInformers) Scheduling() scheduling.Interface {
	return scheduling.New(f, metav1.NamespaceAll, nil)
}

func (f *heldInformers) Storage() storage.Interface { return storage.New(f, metav1.NamespaceAll, nil) }

func (f *heldInformers) Storagemigration() storagemigration.Interface {
	return storagemigration.New(f, metav1.NamespaceAll, nil)
}

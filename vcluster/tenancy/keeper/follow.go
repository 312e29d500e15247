// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/v1alpha1"
)

// syncPoll is how often the keeper looks whether informers know all objects.
const syncPoll = 10 * time.Millisecond

type following struct {
	informer cache.SharedIndexInformer
	handle   cache.ResourceEventHandlerRegistration
}

// informers returns those that are followed, and what is done with an object that has changed. All run anyway.
func (k *Keeper) followed() map[cache.SharedIndexInformer]func(old, object any) {
	f := k.config.Informers
	return map[cache.SharedIndexInformer]func(old, object any){
		f.Core().V1().Namespaces().Informer():      k.namespaceChanged,
		f.Rbac().V1().RoleBindings().Informer():    k.bindingChanged,
		f.Core().V1().ServiceAccounts().Informer(): k.accountChanged,
	}
}

func (k *Keeper) isFollowing() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.followings != nil
}

// follow has the keeper notice changes, and returns when all objects are known.
func (k *Keeper) follow(ctx context.Context) error {
	if k.isFollowing() {
		return nil
	}
	var added []following
	for informer, changed := range k.followed() {
		handle, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    func(object any) { changed(nil, object) },
			UpdateFunc: changed,
			DeleteFunc: func(object any) {
				if last, ok := object.(cache.DeletedFinalStateUnknown); ok {
					object = last.Obj
				}
				changed(object, nil)
			},
		})
		if err != nil {
			remove(added)
			return fmt.Errorf("follow objects: %w", err)
		}
		added = append(added, following{informer, handle})
	}
	err := wait.PollUntilContextCancel(ctx, syncPoll, true, func(context.Context) (bool, error) {
		return !slices.ContainsFunc(added, func(f following) bool { return !f.handle.HasSynced() }), nil
	})
	if err != nil {
		remove(added)
		return fmt.Errorf("wait for objects: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.followings = added
	return nil
}

// unfollow has the keeper notice nothing, and cost nothing.
func (k *Keeper) unfollow() {
	k.mu.Lock()
	defer k.mu.Unlock()
	remove(k.followings)
	k.followings, k.known = nil, map[key]verified{}
	k.queue.reset()
}

func remove(all []following) {
	for _, f := range all {
		_ = f.informer.RemoveEventHandler(f.handle)
	}
}

func (k *Keeper) namespaceChanged(old, object any) {
	if namespace, ok := object.(*corev1.Namespace); ok {
		was, known := old.(*corev1.Namespace)
		if !known || was.UID != namespace.UID || !maps.Equal(was.Labels, namespace.Labels) || !maps.Equal(was.Annotations, namespace.Annotations) {
			k.queue.add(namespace.Name)
		}
		return
	}
	if gone, ok := old.(*corev1.Namespace); ok {
		k.queue.forget(gone.Name)
		k.forget(func(o key) bool { return o.namespace == gone.Name })
	}
}

// bindingChanged has the bindings of a namespace looked at, unless the keeper wrote what has changed.
func (k *Keeper) bindingChanged(old, object any) {
	version, b := "", &rbacv1.RoleBinding{}
	if now, ok := object.(*rbacv1.RoleBinding); ok {
		b, version = now, now.ResourceVersion
	} else if was, ok := old.(*rbacv1.RoleBinding); ok {
		b = was
	}
	about := key{bindings, b.Namespace, b.Name}
	k.mu.Lock()
	was, known := k.known[about]
	if known && was.version != version {
		delete(k.known, about)
	}
	k.mu.Unlock()
	_, kept := b.Labels[access.LabelRoleBinding]
	if known && was.version != version || !known && kept {
		k.queue.add(b.Namespace)
	}
}

// accountChanged has all bindings looked at if another ServiceAccount is promoted.
func (k *Keeper) accountChanged(old, object any) {
	was, is := isPromoted(old), isPromoted(object)
	if was == is || !k.config.Source.Rules().Promotes() {
		return
	}
	k.promotions.Store(true)
	k.queue.add(k.namespaces()...)
	if was && k.config.Demoted != nil {
		k.config.Demoted()
	}
}

func isPromoted(object any) bool {
	account, ok := object.(*corev1.ServiceAccount)
	return ok && account.Labels[v1alpha1.LabelPromote] == "true"
}

// promoted returns the ServiceAccounts that are promoted.
func (k *Keeper) promoted(rules *access.Rules) []string {
	if !rules.Promotes() {
		return nil
	}
	selector := labels.SelectorFromSet(labels.Set{v1alpha1.LabelPromote: "true"})
	accounts, err := k.config.Informers.Core().V1().ServiceAccounts().Lister().List(selector)
	if err != nil {
		return nil
	}
	names := make([]string, len(accounts))
	for i, a := range accounts {
		names[i] = a.Namespace + "/" + a.Name
	}
	slices.Sort(names)
	return names
}

// namespaces returns the names of all namespaces.
func (k *Keeper) namespaces() []string {
	var names []string
	for _, object := range k.config.Informers.Core().V1().Namespaces().Informer().GetStore().List() {
		if m, err := meta.Accessor(object); err == nil {
			names = append(names, m.GetName())
		}
	}
	slices.Sort(names)
	return names
}

// forget drops what is known of objects.
func (k *Keeper) forget(which func(key) bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	maps.DeleteFunc(k.known, func(o key, _ verified) bool { return which(o) })
}

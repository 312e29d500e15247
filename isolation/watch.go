// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
	watchtools "k8s.io/client-go/tools/watch"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/translate"
)

const (
	// watchPage is how many objects are read at once when a watch begins.
	watchPage = 500
	// watchRetry is the pause after a watch that could not begin.
	watchRetry = 5 * time.Second
)

// Watch reports which isolation objects somebody else has changed or deleted. It caches none: it compares each object
// from the host with the wanted one, and drops it. So its memory does not grow with the number of spaces.
type Watch struct {
	// Host is a client that may list and watch the objects.
	Host client.WithWatch
	// Of returns the isolation of a space; nil if the space does not belong to this platform.
	Of func(space string) *Isolation
	// Spaces returns the names of all spaces.
	Spaces func() []string
	// Changed is called for an object that is not as wanted. It must not block. It may be called again for the same
	// object, and for one that was restored in the meantime.
	Changed func(Change)
	// Policies are watched, too. If there are none, somebody else writes the policies and the roles.
	Policies []client.Object
	Logger   klog.Logger
}

// Change describes an isolation object that is not as wanted.
type Change struct {
	// Space is empty for the policies of all spaces.
	Space string
	// Object is the kind, the namespace if it has one, and the name, for messages. It identifies the object.
	Object string
	// Field is the field that differs; empty if the object is gone.
	Field string
}

func (c Change) String() string {
	if c.Field == "" {
		return c.Object + " was deleted"
	}
	return c.Field + " of " + c.Object + " was changed"
}

// Run watches until ctx ends.
func (w *Watch) Run(ctx context.Context) {
	lists := []client.ObjectList{
		&corev1.NamespaceList{}, &corev1.ResourceQuotaList{}, &corev1.LimitRangeList{}, &networkingv1.NetworkPolicyList{}, &corev1.ServiceAccountList{},
		&rbacv1.RoleBindingList{}, &rbacv1.ClusterRoleBindingList{},
	}
	if len(w.Policies) > 0 {
		lists = append(lists, &rbacv1.RoleList{}, &rbacv1.ClusterRoleList{}, &admissionv1.ValidatingAdmissionPolicyList{}, &admissionv1.ValidatingAdmissionPolicyBindingList{})
	}
	var group sync.WaitGroup
	var listing sync.Mutex
	for _, list := range lists {
		group.Go(func() {
			wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
				err := safego.Call("watch isolation", func() error { return w.follow(ctx, list, &listing) })
				if err != nil && ctx.Err() == nil {
					w.Logger.Error(err, "Could not watch the objects that isolate spaces; Berth retries. Until then, changes to them are not reverted")
				}
			}, watchRetry, 0.5, true)
		})
	}
	group.Wait()
}

// selected returns a label selector for the isolation objects of spaces, without synced objects; for policies, those of
// Berth.
func selected(list client.ObjectList) string {
	managed := translate.LabelManagedBy + "=" + translate.ManagedBy
	switch list.(type) {
	case *admissionv1.ValidatingAdmissionPolicyList, *admissionv1.ValidatingAdmissionPolicyBindingList:
		return managed
	default:
		return managed + "," + translate.LabelSpace + ",!" + translate.LabelNamespace
	}
}

// follow compares all objects of a kind, and then each one that changes, until ctx ends or the watch expires.
func (w *Watch) follow(ctx context.Context, list client.ObjectList, listing *sync.Mutex) error {
	listing.Lock() // one list at a time limits the memory
	since, err := w.compareAll(ctx, list)
	listing.Unlock()
	if err != nil {
		return err
	}
	watcher, err := watchtools.NewRetryWatcherWithContext(ctx, since, &cache.ListWatch{
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			o.LabelSelector = selected(list)
			return w.Host.Watch(ctx, list, &client.ListOptions{Raw: &o})
		},
	})
	if err != nil {
		return fmt.Errorf("watch %T: %w", list, err)
	}
	defer func() {
		watcher.Stop()
		<-watcher.Done()
	}()
	for event := range watcher.ResultChan() {
		object, ok := event.Object.(client.Object)
		switch {
		case event.Type == watch.Error:
			if err := apierrors.FromObject(event.Object); !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
				return fmt.Errorf("watch %T: %w", list, err)
			}
			return nil
		case ok && (event.Type == watch.Added || event.Type == watch.Modified):
			w.compare(object)
		case ok && event.Type == watch.Deleted: // or it lost a label by which it is selected
			w.gone(object)
		}
	}
	return nil
}

// compareAll compares all existing objects of a kind, and finds missing ones. It returns their resource version.
func (w *Watch) compareAll(ctx context.Context, list client.ObjectList) (version string, err error) {
	here := map[client.ObjectKey]struct{}{}
	for page := ""; version == "" || page != ""; page = list.GetContinue() {
		selector, err := labels.Parse(selected(list))
		if err == nil {
			err = w.Host.List(ctx, list, &client.ListOptions{LabelSelector: selector, Limit: watchPage, Continue: page})
		}
		if err != nil {
			return "", fmt.Errorf("list %T: %w", list, err)
		}
		if version == "" {
			version = list.GetResourceVersion()
		}
		err = apimeta.EachListItem(list, func(item runtime.Object) error {
			if object, ok := item.(client.Object); ok {
				here[client.ObjectKeyFromObject(object)] = struct{}{}
				w.compare(object)
			}
			return nil
		})
		if err != nil {
			return "", fmt.Errorf("list %T: %w", list, err)
		}
	}
	find := func(space string, wanted []client.Object) {
		for _, want := range wanted {
			if _, there := here[client.ObjectKeyFromObject(want)]; !there && kindOf(want)+"List" == kindOf(list) {
				w.Changed(Change{Space: space, Object: describe(want)})
			}
		}
	}
	find("", w.Policies)
	for _, space := range w.Spaces() {
		if isolation := w.Of(space); isolation != nil {
			find(space, isolation.objects())
		}
	}
	return version, nil
}

// compare compares an object on the host with the wanted one.
func (w *Watch) compare(live client.Object) {
	if isolation, want := w.want(live); want != nil {
		if field := difference(want, live, isolation.Quota == nil); field != "" {
			w.Changed(Change{Space: isolation.Space.Name, Object: describe(want), Field: field})
		}
	}
}

// gone handles a deleted object.
func (w *Watch) gone(live client.Object) {
	if isolation, want := w.want(live); want != nil {
		w.Changed(Change{Space: isolation.Space.Name, Object: describe(want)})
	}
}

// want returns what an object on the host has to be, and the isolation to which it belongs, which has no space for a
// policy. It returns nil if the object isolates no space of this platform.
func (w *Watch) want(live client.Object) (*Isolation, client.Object) {
	find := func(wanted []client.Object) client.Object {
		for _, want := range wanted {
			if client.ObjectKeyFromObject(want) == client.ObjectKeyFromObject(live) && kindOf(want) == kindOf(live) {
				return want
			}
		}
		return nil
	}
	if want := find(w.Policies); want != nil {
		return &Isolation{}, want
	}
	space, ok := strings.CutPrefix(cmp.Or(live.GetNamespace(), live.GetName()), translate.HostNamespacePrefix)
	if !ok {
		return nil, nil
	}
	space, _, _ = strings.Cut(space, ":") // separates the space in names of cluster-scoped objects; the name of a space contains no colon
	isolation := w.Of(space)
	if isolation == nil {
		return nil, nil
	}
	return isolation, find(isolation.objects())
}

// kindOf returns the kind of a typed object or list from its type, because the field may be empty.
func kindOf(o runtime.Object) string { return reflect.TypeOf(o).Elem().Name() }

func describe(o client.Object) string {
	if o.GetNamespace() == "" {
		return kindOf(o) + " " + o.GetName()
	}
	return kindOf(o) + " " + o.GetName() + " in namespace " + o.GetNamespace()
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/berth-dev/berth/translate"
)

// history is each version of the services and the endpoint slices of a host namespace.
type history struct {
	mu     sync.Mutex
	events []change
}

type change struct {
	version uint64
	key     string
	object  metav1.Object // nil once it is deleted
}

// recorded records the space's services and slices on the host until the test ends.
func (env *testEnv) recorded(t *testing.T) *history {
	t.Helper()
	h := &history{}
	namespace := env.space.HostNamespace()
	for kind, watched := range map[string]func(context.Context, metav1.ListOptions) (watch.Interface, error){
		"service": env.host.CoreV1().Services(namespace).Watch, "slice": env.host.DiscoveryV1().EndpointSlices(namespace).Watch,
	} {
		w, err := watched(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Stop)
		go func() {
			for event := range w.ResultChan() {
				h.add(kind, event)
			}
		}()
	}
	return h
}

func (h *history) add(kind string, event watch.Event) {
	o, err := meta.Accessor(event.Object)
	if err != nil {
		return
	}
	version, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
	if err != nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	c := change{version: version, key: kind + " " + o.GetName()}
	if event.Type != watch.Deleted {
		c.object = o
	}
	h.events = append(h.events, c)
}

// play goes through all moments of the history, in order, and returns what there was last.
func (h *history) play(at func(now map[string]metav1.Object)) map[string]metav1.Object {
	h.mu.Lock()
	defer h.mu.Unlock()
	slices.SortFunc(h.events, func(a, b change) int { return cmp.Compare(a.version, b.version) })
	now := map[string]metav1.Object{}
	for _, c := range h.events {
		if now[c.key] = c.object; c.object == nil {
			delete(now, c.key)
		}
		at(now)
	}
	return now
}

// exposures are the moments at which an exposed service had addresses that the tenant wrote.
func (h *history) exposures() []string {
	found := map[string]bool{}
	h.play(func(now map[string]metav1.Object) {
		for _, o := range now {
			slice, ok := o.(*discoveryv1.EndpointSlice)
			if !ok || len(slice.Endpoints) == 0 {
				continue
			}
			service, ok := now["service "+slice.Labels[discoveryv1.LabelServiceName]].(*corev1.Service)
			if _, tenants := translate.IdentityOf(slice); ok && tenants && translate.Exposed(&service.Spec) {
				found[fmt.Sprintf("service %s in version %s, of type %s, with slice %s in version %s, to %v", service.Name, service.ResourceVersion,
					service.Spec.Type, slice.Name, slice.ResourceVersion, slice.Endpoints[0].Addresses)] = true
			}
		}
	})
	return slices.Sorted(maps.Keys(found))
}

// complete reports whether the history has come to what is on the host now.
func (env *testEnv) complete(h *history) func(context.Context) error {
	return func(ctx context.Context) error {
		services, err := env.host.CoreV1().Services(env.space.HostNamespace()).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		endpoints, err := env.host.DiscoveryV1().EndpointSlices(env.space.HostNamespace()).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		last := map[string]string{}
		for key, o := range h.play(func(map[string]metav1.Object) {}) {
			last[key] = o.GetResourceVersion()
		}
		is := map[string]string{}
		for _, s := range services.Items {
			is["service "+s.Name] = s.ResourceVersion
		}
		for _, s := range endpoints.Items {
			is["slice "+s.Name] = s.ResourceVersion
		}
		if !maps.Equal(is, last) {
			return fmt.Errorf("the history ends with %v, on the host are %v", last, is)
		}
		return nil
	}
}

// never fails the test if an exposed service of the space ever had addresses that the tenant wrote.
func (env *testEnv) never(t *testing.T, h *history) {
	t.Helper()
	env.play([]step{{"have the whole history", env.complete(h)}})
	for _, e := range h.exposures() {
		t.Error("a port of the host led to what the tenant wrote:", e)
	}
}

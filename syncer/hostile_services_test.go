// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
)

// quota sets what the space may have of a resource on the host.
func (env *testEnv) quota(t *testing.T, resource corev1.ResourceName, quantity string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"hard":{%q:%q}}}`, resource, quantity)
	_, err := env.host.CoreV1().ResourceQuotas(env.space.HostNamespace()).Patch(t.Context(), "berth", types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
}

// Addresses are the cluster IPs that services have had, by UID.
type Addresses struct {
	mu  sync.Mutex
	had map[string][]string
}

// watched records the addresses of all services of a namespace until the test ends.
func (a *Addresses) watched(t *testing.T, client kubernetes.Interface, namespace string) {
	t.Helper()
	w, err := client.CoreV1().Services(namespace).Watch(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	go func() {
		for event := range w.ResultChan() {
			if v, ok := event.Object.(*corev1.Service); ok && event.Type != watch.Deleted {
				a.note(v.Name+" "+string(v.UID), v.Spec.ClusterIP)
			}
		}
	}()
}

func (a *Addresses) note(service, address string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Contains(a.had[service], address) {
		a.had[service] = append(a.had[service], address)
	}
}

func (a *Addresses) several() (names []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for service, had := range a.had {
		if len(had) > 1 {
			names = append(names, fmt.Sprintf("%s had %v", service, had))
		}
	}
	return names
}

// undisturbed fails the test for events that say that a service's addresses differ on both sides.
func (env *testEnv) undisturbed(t *testing.T) {
	t.Helper()
	events, err := env.virtual.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events.Items {
		if e.InvolvedObject.Kind == "Service" || e.InvolvedObject.Kind == "IPAddress" {
			t.Errorf("an event about %s %s: %s %s", e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message)
		}
	}
}

// S7, B1: of several clients that create one service at once, one succeeds, and the others read that it exists. None
// of them takes the host object of the one that succeeded, which keeps its address.
func TestHostileServicesCreatedByManyAtOnce(t *testing.T) {
	t.Parallel()
	const names, clients = 40, 4
	env := newEnv(t, "services-raced")
	env.quota(t, corev1.ResourceServices, "1000")
	env.begin(nil)
	had := &Addresses{had: map[string][]string{}}
	had.watched(t, env.virtual, "default")
	had.watched(t, env.host, env.space.HostNamespace())
	var all sync.WaitGroup
	won := make([][]*corev1.Service, names)
	var mu sync.Mutex
	for i := range names {
		for range clients {
			all.Go(func() {
				v, err := env.virtual.CoreV1().Services("default").Create(t.Context(), newService(fmt.Sprintf("web-%d", i), ""), metav1.CreateOptions{})
				mu.Lock()
				defer mu.Unlock()
				if err == nil {
					won[i] = append(won[i], v)
				} else if !apierrors.IsAlreadyExists(err) {
					t.Errorf("create web-%d: got %v, want that it exists", i, err)
				}
			})
		}
	}
	all.Wait()
	env.play([]step{{"come to rest", env.alike}})
	for i, made := range won {
		if len(made) != 1 {
			t.Errorf("web-%d was created %d times, want once", i, len(made))
			continue
		}
		host, err := env.hostService(t.Context(), made[0].Name)
		if err != nil || host.Spec.ClusterIP != made[0].Spec.ClusterIP {
			t.Errorf("web-%d has the address %s, on the host %s (%v)", i, made[0].Spec.ClusterIP, host.Spec.ClusterIP, err)
		}
	}
	for _, s := range had.several() {
		t.Error(s)
	}
	env.undisturbed(t)
}

// S7, B1: services that clients create and delete under the same names, all at once, have one address as long as they are there.
func TestHostileServicesCreatedAndDeletedByManyAtOnce(t *testing.T) {
	t.Parallel()
	const names, clients, rounds = 4, 4, 10
	env := newEnv(t, "services-churned")
	env.quota(t, corev1.ResourceServices, "1000") // what is deleted counts until the host has counted anew
	env.begin(nil)
	had := &Addresses{had: map[string][]string{}}
	had.watched(t, env.virtual, "default")
	services := env.virtual.CoreV1().Services("default")
	var all sync.WaitGroup
	for i := range names {
		name := fmt.Sprintf("web-%d", i)
		for c := range clients {
			all.Go(func() {
				for round := range rounds {
					env.churn(t, name, (c+round)%clients == 0)
				}
			})
		}
	}
	all.Wait()
	for i := range names {
		_, err := services.Create(t.Context(), newService(fmt.Sprintf("web-%d", i), ""), metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			t.Error(err)
		}
	}
	env.play([]step{{"come to rest", env.alike}, {"have the host's addresses", func(ctx context.Context) error {
		for i := range names {
			v, err := services.Get(ctx, fmt.Sprintf("web-%d", i), metav1.GetOptions{})
			if err != nil {
				return err
			}
			if host, err := env.hostService(ctx, v.Name); err != nil || host.Spec.ClusterIP != v.Spec.ClusterIP {
				return fmt.Errorf("%s has %s, on the host %s (%w)", v.Name, v.Spec.ClusterIP, host.Spec.ClusterIP, err)
			}
		}
		return nil
	}}})
	for _, s := range had.several() {
		t.Error(s)
	}
}

// churn creates, changes or deletes a service, whatever others do to it.
func (env *testEnv) churn(t *testing.T, name string, remove bool) {
	t.Helper()
	services := env.virtual.CoreV1().Services("default")
	if remove {
		if err := services.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("delete %s: %v", name, err)
		}
		return
	}
	_, err := services.Create(t.Context(), newService(name, ""), metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Errorf("create %s: %v", name, err)
	}
}

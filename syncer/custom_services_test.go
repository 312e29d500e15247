// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"path"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/syncer/declaration"
	"github.com/berth-dev/berth/translate"
)

// routed returns the environment of a space whose tickets name Services.
func routed(t *testing.T, name string) *customEnv {
	t.Helper()
	return declaredWith(t, name, v1alpha1.SyncedField{Path: "spec.backend", Type: v1alpha1.FieldObject, Resource: "services"})
}

// service writes the Service hand of the space, as change makes it of one that selects pods.
func (env *customEnv) service(what string, change func(*corev1.Service)) step {
	return step{"have the Service " + what, func(ctx context.Context) error {
		services := env.virtual.CoreV1().Services("default")
		v, err := services.Get(ctx, "hand", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			v = newService("hand", "")
			change(v)
			_, err = services.Create(ctx, v, metav1.CreateOptions{})
			return err
		}
		if err != nil {
			return err
		}
		change(v)
		_, err = services.Update(ctx, v, metav1.UpdateOptions{})
		return err
	}}
}

func selecting(v *corev1.Service) {
	v.Spec.Type, v.Spec.ExternalName, v.Spec.Selector = corev1.ServiceTypeClusterIP, "", map[string]string{"app": "web"}
}

func leadingOut(v *corev1.Service) {
	v.Spec.Type, v.Spec.ExternalName, v.Spec.Selector, v.Spec.ClusterIP, v.Spec.ClusterIPs = corev1.ServiceTypeExternalName, "db.host.example", nil, "", nil
}

// lacksTicket waits until the host has no ticket of a name.
func (env *customEnv) lacksTicket(name string) step {
	return step{"see that the ticket " + name + " is not on the host", func(ctx context.Context) error {
		err := env.hostTicket(name, "", func(*unstructured.Unstructured) error { return nil }).do(ctx)
		if err == nil {
			return errors.New("it is there")
		}
		return ignoreNotFound(err)
	}}
}

// isRefused waits until an event of a ticket says that its Service leads out.
func (env *customEnv) isRefused(name string) step {
	return step{"see why the ticket is refused", func(ctx context.Context) error {
		events, err := env.virtual.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.kind=Ticket,involvedObject.name=" + name})
		if err != nil {
			return err
		}
		const want = `spec: Forbidden: it names the Service "hand": the service has type ExternalName or no selector, so it could lead to endpoints outside of the space; use a service that selects pods`
		for _, event := range events.Items {
			if event.Reason == "SpaceForbids" && event.Message == want {
				return nil
			}
		}
		return fmt.Errorf("the events are %v", events.Items)
	}}
}

// outOnHost waits until the Service on the host leads out.
func (env *customEnv) outOnHost(ctx context.Context) error {
	host, err := env.host.CoreV1().Services(env.space.HostNamespace()).Get(ctx, env.space.HostName("default", "hand", translate.LimitLabel), metav1.GetOptions{})
	if err == nil && host.Spec.Type != corev1.ServiceTypeExternalName {
		err = fmt.Errorf("its type is %s", host.Spec.Type)
	}
	return err
}

// C6, S2: objects of a declaration name Services as long as these select pods of the space.
func TestDeclaredObjectsNameServicesThatSelectPods(t *testing.T) {
	t.Parallel()
	env := routed(t, "routed")
	env.begin(nil)
	onHost := env.hostTicket("one", "with the name of the Service there, and owned by the ResourceSync", func(host *unstructured.Unstructured) error {
		backend, _, _ := unstructured.NestedString(host.Object, "spec", "backend")
		owners := host.GetOwnerReferences()
		if backend != env.space.HostName("default", "hand", declaration.NameLimit) || len(owners) != 1 || owners[0].UID != "of-routed" || owners[0].Kind != "ResourceSync" {
			return fmt.Errorf("it has %q, owners %v", backend, owners)
		}
		return nil
	})
	env.play([]step{
		env.service("select pods", selecting),
		env.put("one", map[string]any{"backend": "hand"}),
		env.put("other", map[string]any{"backend": "another"}),
		onHost,
		env.service("lead out", leadingOut),
		env.lacksTicket("one"),
		env.isRefused("one"),
		{"see the Service lead out", env.outOnHost},
		env.service("select pods again", selecting),
		onHost,
		env.hostTicket("other", "untouched", func(*unstructured.Unstructured) error { return nil }),
	})
	// Endpoints that the tenant writes are written when nothing names the Service any more.
	env.play([]step{env.service("select nothing", func(v *corev1.Service) { v.Spec.Selector = nil }), env.lacksTicket("one")})
	env.writeEndpoints(t)
	env.play([]step{
		{"see the endpoints on the host", func(ctx context.Context) error {
			_, err := env.host.DiscoveryV1().EndpointSlices(env.space.HostNamespace()).Get(ctx, env.hostName("hand"), metav1.GetOptions{})
			return err
		}},
		env.put("late", map[string]any{"backend": "hand"}),
		env.isRefused("late"),
		env.lacksTicket("late"),
	})
}

// C6: what names a Service that led out of the space is on the host as soon as the one there is gone, however long it was refused.
func TestDeclaredObjectsFollowTheServiceOnTheHost(t *testing.T) {
	t.Parallel()
	env := routed(t, "released")
	env.begin(nil)
	services, host := env.virtual.CoreV1().Services("default"), env.host.CoreV1().Services(env.space.HostNamespace())
	for ticket, lead := range map[string]func(){
		"out": func() {
			env.play([]step{env.service("lead out", leadingOut), {"see the Service lead out", env.outOnHost}})
		},
		"to-endpoints": func() {
			env.writeEndpoints(t)
			awaited(t, "the endpoints on the host", env.host.DiscoveryV1().EndpointSlices(env.space.HostNamespace()).Get, env.hostName("hand"), nil)
		},
	} {
		lead()
		env.play([]step{env.put(ticket, map[string]any{"backend": "hand"}), env.isRefused(ticket)})
		// The ticket is synced when the Service is gone in the space, and then the one on the host still leads out.
		if err := services.Delete(t.Context(), "hand", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		awaitedGone(t, "the Service on the host", host.Get, env.space.HostName("default", "hand", translate.LimitLabel))
		env.idle(t) // no retry counts
		if err := env.hostTicket(ticket, "", func(*unstructured.Unstructured) error { return nil }).do(t.Context()); err != nil {
			t.Errorf("when the Service that led %s is gone: %v", ticket, err)
		}
	}
}

// S2: a Service that leads out while an object that names it is on its way to the host.
func TestHostileServicesThatLeadOutDuringACreate(t *testing.T) {
	t.Parallel()
	env := routed(t, "rerouted")
	var once sync.Once
	created := make(chan struct{})
	env.begin(func(c call, send func() (*http.Response, error)) (*http.Response, error) {
		if c.to == toHost && c.Method == http.MethodPost && path.Base(c.URL.Path) == "tickets" {
			once.Do(func() {
				testhost.Eventually(env.t, "change the Service meanwhile", env.service("lead out", leadingOut).do)
				testhost.Eventually(env.t, "see it lead out on the host", env.outOnHost)
			})
			resp, err := send()
			if err == nil && resp.StatusCode == http.StatusCreated {
				close(created)
			}
			return resp, err
		}
		return send()
	})
	env.play([]step{env.service("select pods", selecting), env.put("one", map[string]any{"backend": "hand"})})
	<-created
	env.play([]step{env.lacksTicket("one"), env.isRefused("one"), {"see the Service lead out", env.outOnHost}})
}

// S2: a Service leads out when what could lead to it, and isn't synced any more, is gone from the host.
func TestHostileServicesWaitForWhatIsWithdrawn(t *testing.T) {
	t.Parallel()
	env := newEnv(t, "withdraws")
	var asked atomic.Int64
	var gone atomic.Bool
	env.withdraw = func(context.Context) error {
		asked.Add(1)
		if !gone.Load() {
			return errors.New("the host can't be asked")
		}
		return nil
	}
	env.begin(nil)
	// Of the first, the type changes; to the second, endpoints are written.
	slices := env.host.DiscoveryV1().EndpointSlices(env.space.HostNamespace())
	custom := &customEnv{testEnv: env}
	env.play([]step{custom.service("select pods", selecting), custom.service("lead out", leadingOut), {"be asked again", func(context.Context) error {
		if n := asked.Load(); n < 3 {
			return fmt.Errorf("it was %d times", n)
		}
		return nil
	}}})
	if err := custom.outOnHost(t.Context()); err == nil {
		t.Error("the Service leads out")
	}
	env.play([]step{custom.service("select nothing", func(v *corev1.Service) { selecting(v); v.Spec.Selector = nil })})
	env.writeEndpoints(t)
	before := asked.Load()
	env.play([]step{{"be asked again", func(context.Context) error {
		if asked.Load() < before+3 {
			return errors.New("not yet")
		}
		return nil
	}}})
	if _, err := slices.Get(t.Context(), env.hostName("hand"), metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the endpoints on the host: %v", err)
	}
	gone.Store(true)
	env.play([]step{{"see the endpoints on the host", func(ctx context.Context) error {
		_, err := slices.Get(ctx, env.hostName("hand"), metav1.GetOptions{})
		return err
	}}})
}

// L3: a tenant doesn't have the host list its objects without end, by a Service that is about to lead out and can't.
func TestHostileServicesListTheHostAtARate(t *testing.T) {
	t.Parallel()
	env := newEnv(t, "outward")
	var asked atomic.Int64
	env.withdraw = func(context.Context) error {
		asked.Add(1)
		return errors.New("the host can't be asked")
	}
	env.begin(nil)
	began := time.Now()
	custom := &customEnv{testEnv: env}
	env.play([]step{custom.service("lead out", leadingOut)})
	services := env.virtual.CoreV1().Services("default")
	for i := range 300 {
		was := asked.Load()
		if _, err := services.Patch(t.Context(), "hand", types.MergePatchType, fmt.Appendf(nil, `{"spec":{"externalName":"db-%d.host.example"}}`, i), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if was >= 100 {
			continue // those of a moment were asked for
		}
		env.play([]step{{"be asked", func(context.Context) error {
			if asked.Load() == was {
				return fmt.Errorf("it was %d times, after %d changes", was, i+1)
			}
			return nil
		}}})
	}
	if n, most := asked.Load(), 101+int64(5*time.Since(began).Seconds()); n < 100 || n > most {
		t.Errorf("the host was asked %d times, want from 100 to %d", n, most)
	}
}

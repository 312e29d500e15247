// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/translate"
)

// written is an address that the tenant of these tests writes.
const written = "203.0.113.7"

// ways are those in which a service whose endpoints the tenant writes becomes one that is reached from outside.
func ways() map[string]func(context.Context, *testEnv) error {
	selector := map[string]string{"app": "web"}
	return map[string]func(context.Context, *testEnv) error{
		"node port": func(ctx context.Context, env *testEnv) error { return env.retype(ctx, corev1.ServiceTypeNodePort, nil) },
		"selecting": func(ctx context.Context, env *testEnv) error {
			return env.retype(ctx, corev1.ServiceTypeNodePort, selector)
		},
		"load balancer": func(ctx context.Context, env *testEnv) error {
			return env.retype(ctx, corev1.ServiceTypeLoadBalancer, nil)
		},
		"made anew": func(ctx context.Context, env *testEnv) error {
			services := env.virtual.CoreV1().Services("default")
			if v, err := services.Get(ctx, "hand", metav1.GetOptions{}); err == nil && v.Spec.Type == corev1.ServiceTypeClusterIP {
				if err := services.Delete(ctx, "hand", metav1.DeleteOptions{}); err != nil {
					return err
				}
			}
			v := newService("hand", "")
			v.Spec.Selector, v.Spec.Type = nil, corev1.ServiceTypeNodePort
			_, err := services.Create(ctx, v, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		},
	}
}

// eachWay runs a test in a space of its own for each of the [ways]. In the end the service is exposed and has no slice on the
// host, and never had both.
func eachWay(t *testing.T, space string, test func(t *testing.T, env *testEnv, way func(context.Context, *testEnv) error)) {
	t.Parallel()
	for name, way := range ways() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := newEnv(t, space+"-"+strings.ReplaceAll(name, " ", "-"))
			h := env.recorded(t)
			test(t, env, way)
			awaitedGone(t, "see no slice", env.host.DiscoveryV1().EndpointSlices(env.space.HostNamespace()).Get, env.hostName("hand"))
			env.never(t, h)
			env.play([]step{{"come to rest", env.alike}})
		})
	}
}

// retype changes the type and the selector of the service hand.
func (env *testEnv) retype(ctx context.Context, to corev1.ServiceType, selector map[string]string) error {
	services := env.virtual.CoreV1().Services("default")
	v, err := services.Get(ctx, "hand", metav1.GetOptions{})
	if err != nil {
		return err
	}
	v.Spec.Type, v.Spec.Selector = to, selector
	if to == corev1.ServiceTypeClusterIP {
		for i := range v.Spec.Ports {
			v.Spec.Ports[i].NodePort = 0
		}
	}
	_, err = services.Update(ctx, v, metav1.UpdateOptions{})
	return err
}

// writeEndpoints makes the service hand, without a selector, and its endpoints.
func (env *testEnv) writeEndpoints(t *testing.T) {
	t.Helper()
	v := newService("hand", "")
	v.Spec.Selector = nil
	testhost.Eventually(t, "create the service", func(ctx context.Context) error {
		_, err := created(ctx, env.virtual.CoreV1().Services("default").Create, v)
		return alsoThere(err)
	})
	testhost.Eventually(t, "create the slice", func(ctx context.Context) error {
		_, err := created(ctx, env.virtual.DiscoveryV1().EndpointSlices("default").Create, &discoveryv1.EndpointSlice{
			ObjectMeta:  metav1.ObjectMeta{Name: "hand", Labels: map[string]string{discoveryv1.LabelServiceName: "hand"}},
			AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{written}}},
		})
		return alsoThere(err)
	})
}

func alsoThere(err error) error {
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// filled waits until the endpoints are on the host.
func (env *testEnv) filled(t *testing.T) {
	t.Helper()
	awaited(t, "the endpoints on the host", env.host.DiscoveryV1().EndpointSlices(env.space.HostNamespace()).Get, env.hostName("hand"), func(s *discoveryv1.EndpointSlice) error {
		if len(s.Endpoints) == 0 {
			return fmt.Errorf("%s has none", s.Name)
		}
		return nil
	})
}

// exposed has the service become one that is reached from outside, in one of the [ways], and waits until it is on the host.
func (env *testEnv) exposed(t *testing.T, way func(context.Context, *testEnv) error) {
	t.Helper()
	testhost.Eventually(t, "change the service", func(ctx context.Context) error { return way(ctx, env) })
	tries := 0
	testhost.Eventually(t, "see it exposed on the host", func(ctx context.Context) error {
		host, err := env.hostService(ctx, "hand")
		if err != nil || translate.Exposed(&host.Spec) {
			return err
		}
		if tries++; tries%200 == 0 { // a write that was cut off may have left its node port taken, for minutes: ask for another
			err = errors.Join(env.retype(ctx, corev1.ServiceTypeClusterIP, nil), way(ctx, env))
		}
		return errors.Join(fmt.Errorf("it is of type %s", host.Spec.Type), err)
	})
}

func (c call) ofSlices() bool {
	return c.to == toHost && c.writes() && strings.Contains(c.URL.Path, "/endpointslices")
}

// S1, CVE-2021-25740: a service is exposed after the endpoints that the tenant wrote have gone from the host, however
// long it takes until they have.
func TestHostileServicesAreExposedAfterTheirEndpointsAreGone(t *testing.T) {
	eachWay(t, "exposed", func(t *testing.T, env *testEnv, way func(context.Context, *testEnv) error) {
		var refused atomic.Int32
		var released atomic.Bool
		env.begin(func(c call, send func() (*http.Response, error)) (*http.Response, error) {
			if c.ofSlices() && c.Method == http.MethodDelete && !released.Load() {
				refused.Add(1)
				return nil, errCut
			}
			return send()
		})
		env.writeEndpoints(t)
		env.filled(t)
		testhost.Eventually(t, "have deletions refused", func(ctx context.Context) error {
			err := way(ctx, env)
			if n := refused.Load(); n < 3 {
				return fmt.Errorf("%d were, and the change got %w", n, err)
			}
			return nil
		})
		released.Store(true)
		env.exposed(t, way)
	})
}

// S1, CVE-2021-25740: endpoints that are on their way to the host while their service is exposed do not arrive.
func TestHostileEndpointsThatComeLateDoNotReachAnExposedService(t *testing.T) {
	eachWay(t, "late", func(t *testing.T, env *testEnv, way func(context.Context, *testEnv) error) {
		held, release, answered := make(chan struct{}), make(chan struct{}), make(chan struct{})
		var first sync.Once
		env.begin(func(c call, send func() (*http.Response, error)) (*http.Response, error) {
			if !c.ofSlices() || c.Body == nil {
				return send()
			}
			body, err := io.ReadAll(c.Body)
			if err != nil {
				return nil, err
			}
			c.Body = io.NopCloser(bytes.NewReader(body))
			if !bytes.Contains(body, []byte(written)) {
				return send()
			}
			late := false
			first.Do(func() { late = true })
			if !late {
				return send()
			}
			close(held)
			<-release
			defer close(answered)
			return send()
		})
		free := sync.OnceFunc(func() { close(release) })
		t.Cleanup(free)
		env.writeEndpoints(t)
		<-held
		env.exposed(t, way)
		free()
		<-answered
	})
}

// S1, S7, CVE-2021-25740: the same if the syncer is killed at each write in between.
func TestHostileServicesAreExposedByASyncerThatCrashes(t *testing.T) {
	t.Parallel()
	for _, how := range []crashMode{unsent, unanswered} {
		t.Run(string(how), func(t *testing.T) {
			t.Parallel()
			env := newEnv(t, "exposed-crash-"+string(how))
			env.quota(t, corev1.ResourceServicesNodePorts, "50")
			h := env.recorded(t)
			var mu sync.Mutex
			round, crashed := "", map[string]bool{}
			env.supervise(func(run *syncerRun) rule {
				return run.crashAt(how, func(c call) bool {
					mu.Lock()
					defer mu.Unlock()
					at := round + ": " + c.String()
					was := crashed[at]
					crashed[at] = true
					return !was
				})
			}, func() bool { return false })
			for name, way := range ways() {
				mu.Lock()
				round = name
				mu.Unlock()
				env.writeEndpoints(t)
				env.filled(t)
				mu.Lock()
				round = name + ", exposing"
				mu.Unlock()
				env.exposed(t, way)
				env.play([]step{
					{"come to rest", env.alike},
					{"have a cluster IP only", func(ctx context.Context) error { return env.retype(ctx, corev1.ServiceTypeClusterIP, nil) }},
				})
			}
			env.filled(t)
			env.never(t, h)
			mu.Lock()
			defer mu.Unlock()
			if len(crashed) < 15 {
				t.Errorf("the syncer crashed at %d writes only: %v", len(crashed), slices.Sorted(maps.Keys(crashed)))
			}
		})
	}
}

// S1: a service that the host does not expose, for its quota, has the endpoints that the tenant wrote again.
func TestHostileServicesThatAreNotExposedKeepTheirEndpoints(t *testing.T) {
	t.Parallel()
	env := newEnv(t, "not-exposed")
	env.quota(t, corev1.ResourceServicesNodePorts, "0")
	h := env.recorded(t)
	env.begin(nil)
	env.writeEndpoints(t)
	env.filled(t)
	testhost.Eventually(t, "have the change refused", func(ctx context.Context) error {
		if err := env.retype(ctx, corev1.ServiceTypeNodePort, nil); !apierrors.IsForbidden(err) {
			return fmt.Errorf("got %w, want that it is forbidden", err)
		}
		return nil
	})
	env.play([]step{{"have the service as it was", func(ctx context.Context) error {
		host, err := env.hostService(ctx, "hand")
		if err == nil && len(host.Spec.Selector) > 0 {
			err = fmt.Errorf("it selects %v", host.Spec.Selector)
		}
		return err
	}}})
	env.filled(t)
	env.never(t, h)
	env.play([]step{{"come to rest", env.alike}})
}

// S1: a slice that its tenant gives to another service gives it no address ahead.
func TestHostileSlicesAreMadeAnewForAnotherService(t *testing.T) {
	t.Parallel()
	env := newEnv(t, "slice-moves")
	env.begin(nil)
	env.writeEndpoints(t)
	env.filled(t)
	theirs := env.host.DiscoveryV1().EndpointSlices(env.space.HostNamespace())
	before := awaited(t, "the slice", theirs.Get, env.hostName("hand"), nil)
	other := newService("other", "")
	other.Spec.Selector = nil
	must(t, env.virtual.CoreV1().Services("default").Create, other)
	testhost.Eventually(t, "give the slice to another service", func(ctx context.Context) error {
		ours := env.virtual.DiscoveryV1().EndpointSlices("default")
		v, err := ours.Get(ctx, "hand", metav1.GetOptions{})
		if err != nil {
			return err
		}
		v.Labels[discoveryv1.LabelServiceName] = "other"
		_, err = ours.Update(ctx, v, metav1.UpdateOptions{})
		return err
	})
	awaited(t, "the slice of the other service", theirs.Get, env.hostName("hand"), func(s *discoveryv1.EndpointSlice) error {
		if s.Labels[discoveryv1.LabelServiceName] != env.space.HostName("default", "other", translate.LimitLabel) || len(s.Endpoints) == 0 {
			return fmt.Errorf("labels %v, %d endpoints", s.Labels, len(s.Endpoints))
		}
		if s.UID == before.UID {
			t.Error("it is the same as before")
		}
		return nil
	})
}

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
func ways() map[string]func(context.Context, *bed) error {
	selector := map[string]string{"app": "web"}
	return map[string]func(context.Context, *bed) error{
		"node port":     func(ctx context.Context, b *bed) error { return b.retype(ctx, corev1.ServiceTypeNodePort, nil) },
		"selecting":     func(ctx context.Context, b *bed) error { return b.retype(ctx, corev1.ServiceTypeNodePort, selector) },
		"load balancer": func(ctx context.Context, b *bed) error { return b.retype(ctx, corev1.ServiceTypeLoadBalancer, nil) },
		"made anew": func(ctx context.Context, b *bed) error {
			services := b.virtual.CoreV1().Services("default")
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
func eachWay(t *testing.T, space string, test func(t *testing.T, b *bed, way func(context.Context, *bed) error)) {
	t.Parallel()
	for name, way := range ways() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBed(t, space+"-"+strings.ReplaceAll(name, " ", "-"))
			h := b.recorded(t)
			test(t, b, way)
			awaitedGone(t, "see no slice", b.host.DiscoveryV1().EndpointSlices(b.space.HostNamespace()).Get, b.hostName("hand"))
			b.never(t, h)
			b.play([]step{{"come to rest", b.alike}})
		})
	}
}

// retype changes the type and the selector of the service hand.
func (b *bed) retype(ctx context.Context, to corev1.ServiceType, selector map[string]string) error {
	services := b.virtual.CoreV1().Services("default")
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
func (b *bed) writeEndpoints(t *testing.T) {
	t.Helper()
	v := newService("hand", "")
	v.Spec.Selector = nil
	testhost.Eventually(t, "create the service", func(ctx context.Context) error {
		_, err := created(ctx, b.virtual.CoreV1().Services("default").Create, v)
		return alsoThere(err)
	})
	testhost.Eventually(t, "create the slice", func(ctx context.Context) error {
		_, err := created(ctx, b.virtual.DiscoveryV1().EndpointSlices("default").Create, &discoveryv1.EndpointSlice{
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
func (b *bed) filled(t *testing.T) {
	t.Helper()
	awaited(t, "the endpoints on the host", b.host.DiscoveryV1().EndpointSlices(b.space.HostNamespace()).Get, b.hostName("hand"), func(s *discoveryv1.EndpointSlice) error {
		if len(s.Endpoints) == 0 {
			return fmt.Errorf("%s has none", s.Name)
		}
		return nil
	})
}

// exposed has the service become one that is reached from outside, in one of the [ways], and waits until it is on the host.
func (b *bed) exposed(t *testing.T, way func(context.Context, *bed) error) {
	t.Helper()
	testhost.Eventually(t, "change the service", func(ctx context.Context) error { return way(ctx, b) })
	tries := 0
	testhost.Eventually(t, "see it exposed on the host", func(ctx context.Context) error {
		host, err := b.hostService(ctx, "hand")
		if err != nil || translate.Exposed(&host.Spec) {
			return err
		}
		if tries++; tries%200 == 0 { // a write that was cut off may have left its node port taken, for minutes: ask for another
			err = errors.Join(b.retype(ctx, corev1.ServiceTypeClusterIP, nil), way(ctx, b))
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
	eachWay(t, "exposed", func(t *testing.T, b *bed, way func(context.Context, *bed) error) {
		var refused atomic.Int32
		var released atomic.Bool
		b.begin(func(c call, send func() (*http.Response, error)) (*http.Response, error) {
			if c.ofSlices() && c.Method == http.MethodDelete && !released.Load() {
				refused.Add(1)
				return nil, errCut
			}
			return send()
		})
		b.writeEndpoints(t)
		b.filled(t)
		testhost.Eventually(t, "have deletions refused", func(ctx context.Context) error {
			err := way(ctx, b)
			if n := refused.Load(); n < 3 {
				return fmt.Errorf("%d were, and the change got %w", n, err)
			}
			return nil
		})
		released.Store(true)
		b.exposed(t, way)
	})
}

// S1, CVE-2021-25740: endpoints that are on their way to the host while their service is exposed do not arrive.
func TestHostileEndpointsThatComeLateDoNotReachAnExposedService(t *testing.T) {
	eachWay(t, "late", func(t *testing.T, b *bed, way func(context.Context, *bed) error) {
		held, release, answered := make(chan struct{}), make(chan struct{}), make(chan struct{})
		var first sync.Once
		b.begin(func(c call, send func() (*http.Response, error)) (*http.Response, error) {
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
		b.writeEndpoints(t)
		<-held
		b.exposed(t, way)
		free()
		<-answered
	})
}

// S1, S7, CVE-2021-25740: the same if the syncer is killed at each write in between.
func TestHostileServicesAreExposedByASyncerThatCrashes(t *testing.T) {
	t.Parallel()
	for _, how := range []fate{unsent, unanswered} {
		t.Run(string(how), func(t *testing.T) {
			t.Parallel()
			b := newBed(t, "exposed-crash-"+string(how))
			b.quota(t, corev1.ResourceServicesNodePorts, "50")
			h := b.recorded(t)
			var mu sync.Mutex
			round, died := "", map[string]bool{}
			b.supervise(func(l *life) rule {
				return l.dieAt(how, func(c call) bool {
					mu.Lock()
					defer mu.Unlock()
					at := round + ": " + c.String()
					was := died[at]
					died[at] = true
					return !was
				})
			}, func() bool { return false })
			for name, way := range ways() {
				mu.Lock()
				round = name
				mu.Unlock()
				b.writeEndpoints(t)
				b.filled(t)
				mu.Lock()
				round = name + ", exposing"
				mu.Unlock()
				b.exposed(t, way)
				b.play([]step{
					{"come to rest", b.alike},
					{"have a cluster IP only", func(ctx context.Context) error { return b.retype(ctx, corev1.ServiceTypeClusterIP, nil) }},
				})
			}
			b.filled(t)
			b.never(t, h)
			mu.Lock()
			defer mu.Unlock()
			if len(died) < 15 {
				t.Errorf("the syncer died at %d writes only: %v", len(died), slices.Sorted(maps.Keys(died)))
			}
		})
	}
}

// S1: a service that the host does not expose, for its quota, has the endpoints that the tenant wrote again.
func TestHostileServicesThatAreNotExposedKeepTheirEndpoints(t *testing.T) {
	t.Parallel()
	b := newBed(t, "not-exposed")
	b.quota(t, corev1.ResourceServicesNodePorts, "0")
	h := b.recorded(t)
	b.begin(nil)
	b.writeEndpoints(t)
	b.filled(t)
	testhost.Eventually(t, "have the change refused", func(ctx context.Context) error {
		if err := b.retype(ctx, corev1.ServiceTypeNodePort, nil); !apierrors.IsForbidden(err) {
			return fmt.Errorf("got %w, want that it is forbidden", err)
		}
		return nil
	})
	b.play([]step{{"have the service as it was", func(ctx context.Context) error {
		host, err := b.hostService(ctx, "hand")
		if err == nil && len(host.Spec.Selector) > 0 {
			err = fmt.Errorf("it selects %v", host.Spec.Selector)
		}
		return err
	}}})
	b.filled(t)
	b.never(t, h)
	b.play([]step{{"come to rest", b.alike}})
}

// S1: a slice that its tenant gives to another service gives it no address ahead.
func TestHostileSlicesAreMadeAnewForAnotherService(t *testing.T) {
	t.Parallel()
	b := newBed(t, "slice-moves")
	b.begin(nil)
	b.writeEndpoints(t)
	b.filled(t)
	theirs := b.host.DiscoveryV1().EndpointSlices(b.space.HostNamespace())
	before := awaited(t, "the slice", theirs.Get, b.hostName("hand"), nil)
	other := newService("other", "")
	other.Spec.Selector = nil
	must(t, b.virtual.CoreV1().Services("default").Create, other)
	testhost.Eventually(t, "give the slice to another service", func(ctx context.Context) error {
		ours := b.virtual.DiscoveryV1().EndpointSlices("default")
		v, err := ours.Get(ctx, "hand", metav1.GetOptions{})
		if err != nil {
			return err
		}
		v.Labels[discoveryv1.LabelServiceName] = "other"
		_, err = ours.Update(ctx, v, metav1.UpdateOptions{})
		return err
	})
	awaited(t, "the slice of the other service", theirs.Get, b.hostName("hand"), func(s *discoveryv1.EndpointSlice) error {
		if s.Labels[discoveryv1.LabelServiceName] != b.space.HostName("default", "other", translate.LimitLabel) || len(s.Endpoints) == 0 {
			return fmt.Errorf("labels %v, %d endpoints", s.Labels, len(s.Endpoints))
		}
		if s.UID == before.UID {
			t.Error("it is the same as before")
		}
		return nil
	})
}

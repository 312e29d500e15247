// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/internal/testhost"
)

// readLists counts the bytes that the syncer reads in lists of the space's objects of a resource on the host.
type readLists struct {
	resource     string
	lists, bytes atomic.Int64
}

func (l *readLists) rule(c call, send func() (*http.Response, error)) (*http.Response, error) {
	resp, err := send()
	if err != nil || c.to != toHost || c.Method != http.MethodGet || c.watches() || !strings.Contains(c.URL.Path, "/namespaces/") || !strings.HasSuffix(c.URL.Path, "/"+l.resource) {
		return resp, err
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	l.lists.Add(1)
	l.bytes.Add(int64(len(body)))
	resp.Body = io.NopCloser(bytes.NewReader(body))
	return resp, err
}

func (l *readLists) check(t *testing.T) {
	t.Helper()
	lists, read := l.lists.Load(), l.bytes.Load()
	if lists == 0 {
		t.Fatalf("%s were not listed", l.resource)
	}
	if each := read / lists; each > 8<<10 {
		t.Errorf("a list of one of the %s read %d KiB", l.resource, each>>10)
	}
}

// L3: each endpoint slice that a tenant writes has the space's ingresses looked at, past the watch. A space may have tens of
// megabytes of these, and its syncer looks at 64 slices at once.
func TestHostileIngressesAreNotReadForEachEndpointSlice(t *testing.T) {
	t.Parallel()
	env := newEnv(t, "exposures-listed")
	l := &readLists{resource: "ingresses"}
	env.ingressClass(t, "exposures-listed", importLabel())
	env.begin(l.rule)
	v := newIngress("large", "exposures-listed", "large.exposures-listed.example")
	paths := &v.Spec.Rules[0].HTTP.Paths
	for i := range 500 {
		path := (*paths)[0]
		path.Path = fmt.Sprintf("/%d/%s", i, strings.Repeat("x", 200))
		*paths = append(*paths, path)
	}
	must(t, env.virtual.NetworkingV1().Ingresses("default").Create, v)
	awaited(t, "see it on the host", env.host.NetworkingV1().Ingresses(env.space.HostNamespace()).Get, env.hostName("large"), nil)
	env.writeEndpoints(t)
	env.filled(t)
	l.check(t)
}

// L3: the same for the slices of a service that is about to be exposed, which many requests may do at once.
func TestHostileEndpointSlicesAreNotReadToBeDeleted(t *testing.T) {
	t.Parallel()
	env := newEnv(t, "slices-listed")
	l := &readLists{resource: "endpointslices"}
	env.begin(l.rule)
	env.writeEndpoints(t)
	slices := env.virtual.DiscoveryV1().EndpointSlices("default")
	testhost.Eventually(t, "write many addresses", func(ctx context.Context) error {
		slice, err := slices.Get(ctx, "hand", metav1.GetOptions{})
		if err != nil {
			return err
		}
		slice.Endpoints = nil
		for i := range 1000 {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("203.0.%d.%d", i/200, i%200+1)}})
		}
		_, err = slices.Update(ctx, slice, metav1.UpdateOptions{})
		return err
	})
	awaited(t, "the endpoints on the host", env.host.DiscoveryV1().EndpointSlices(env.space.HostNamespace()).Get, env.hostName("hand"), func(s *discoveryv1.EndpointSlice) error {
		if len(s.Endpoints) < 1000 {
			return fmt.Errorf("it has %d", len(s.Endpoints))
		}
		return nil
	})
	env.exposed(t, func(ctx context.Context, env *testEnv) error { return env.retype(ctx, corev1.ServiceTypeNodePort, nil) })
	awaitedGone(t, "see no slice", env.host.DiscoveryV1().EndpointSlices(env.space.HostNamespace()).Get, env.hostName("hand"))
	l.check(t)
}

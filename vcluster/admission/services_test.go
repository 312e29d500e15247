// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/bounds"
)

func service(name string, kind corev1.ServiceType) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.ServiceSpec{Type: kind, Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Name: "http", Port: 80}}},
	}
}

// Services show the host's addresses from their first moment on, and keep them.
func TestServicesGetTheHostsAddresses(t *testing.T) {
	s := startSpace(t)
	services := s.outside.CoreV1().Services("default")
	create := func(t *testing.T, v *corev1.Service, o metav1.CreateOptions) *corev1.Service {
		t.Helper()
		v, err := services.Create(t.Context(), v, o)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	given := func(t *testing.T, v *corev1.Service) {
		t.Helper()
		if !strings.HasPrefix(v.Spec.ClusterIP, "10.96.7.") || len(v.Spec.ClusterIPs) != 1 || v.Spec.ClusterIPs[0] != v.Spec.ClusterIP {
			t.Errorf("cluster IPs are %q %q, want the host's", v.Spec.ClusterIP, v.Spec.ClusterIPs)
		}
	}

	t.Run("a new one", func(t *testing.T) {
		given(t, create(t, service("new", corev1.ServiceTypeClusterIP), metav1.CreateOptions{}))
		asked := s.host.asks("new")
		if len(asked) != 1 || asked[0].UID != "" || asked[0].Namespace != "default" || asked[0].Spec.Ports[0].Protocol != corev1.ProtocolTCP {
			t.Errorf("the host was asked %v, want once, with defaults filled in and no UID", asked)
		}
	})
	t.Run("one with node ports", func(t *testing.T) {
		v := create(t, service("ports", corev1.ServiceTypeNodePort), metav1.CreateOptions{})
		given(t, v)
		if port := v.Spec.Ports[0].NodePort; port <= 30500 || port > 30600 {
			t.Errorf("node port is %d, want the host's", port)
		}
	})
	t.Run("one that the server names", func(t *testing.T) {
		v := service("", corev1.ServiceTypeClusterIP)
		v.GenerateName = "generated-"
		v = create(t, v, metav1.CreateOptions{})
		given(t, v)
		if len(s.host.asks(v.Name)) != 1 {
			t.Errorf("the host was not asked for %s, the name that the service got", v.Name)
		}
	})
	t.Run("a dry run asks for nothing", func(t *testing.T) {
		create(t, service("dry", corev1.ServiceTypeClusterIP), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if asked := s.host.asks("dry"); len(asked) > 0 {
			t.Errorf("the host was asked %v", asked)
		}
	})
	t.Run("an external name needs none", func(t *testing.T) {
		v := service("external", corev1.ServiceTypeExternalName)
		v.Spec.ExternalName, v.Spec.Ports = "example.com", nil
		create(t, v, metav1.CreateOptions{})
		if asked := s.host.asks("external"); len(asked) > 0 {
			t.Errorf("the host was asked %v", asked)
		}
		// Until it is one of another type.
		v.Spec.Type, v.Spec.Ports = corev1.ServiceTypeClusterIP, service("", "").Spec.Ports
		current, err := services.Get(t.Context(), "external", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		v.ResourceVersion, v.Spec.ExternalName = current.ResourceVersion, ""
		v, err = services.Update(t.Context(), v, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		given(t, v)
		if asked := s.host.asks("external"); len(asked) != 1 || asked[0].UID != current.UID {
			t.Errorf("the host was asked %v, want once, for %s", asked, current.UID)
		}
	})
	t.Run("headless ones keep none", func(t *testing.T) {
		v := service("headless", corev1.ServiceTypeClusterIP)
		v.Spec.ClusterIP = corev1.ClusterIPNone
		if v = create(t, v, metav1.CreateOptions{}); v.Spec.ClusterIP != corev1.ClusterIPNone {
			t.Errorf("cluster IP is %q", v.Spec.ClusterIP)
		}
	})
	t.Run("a taken name asks for nothing", func(t *testing.T) {
		if _, err := services.Create(t.Context(), service("new", corev1.ServiceTypeClusterIP), metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
			t.Errorf("got %v", err)
		}
		if asked := s.host.asks("new"); len(asked) > 0 {
			t.Errorf("the host was asked %v: it would take the service for a new one", asked)
		}
	})
	// `kubectl replace` with a file from before: no UID, no cluster IP. To the
	// host it must not look like a new service in place of the old.
	t.Run("a replaced one keeps its own", func(t *testing.T) {
		before := create(t, service("replaced", corev1.ServiceTypeNodePort), metav1.CreateOptions{})
		s.host.asks("replaced")
		v := service("replaced", corev1.ServiceTypeNodePort)
		v.ResourceVersion, v.Spec.Ports = before.ResourceVersion, append(v.Spec.Ports, corev1.ServicePort{Name: "more", Port: 81})
		after, err := services.Update(t.Context(), v, metav1.UpdateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if after.Spec.ClusterIP != before.Spec.ClusterIP || after.UID != before.UID {
			t.Errorf("the cluster IP was %s and is %s", before.Spec.ClusterIP, after.Spec.ClusterIP)
		}
		for _, asked := range s.host.asks("replaced") {
			if asked.UID != before.UID || asked.Spec.ClusterIP != before.Spec.ClusterIP {
				t.Errorf("the host was asked for %q with address %q", asked.UID, asked.Spec.ClusterIP)
			}
		}
		if after.Spec.Ports[1].NodePort <= 30500 {
			t.Errorf("the new port's node port is %d, want the host's", after.Spec.Ports[1].NodePort)
		}
	})
	// By the version the host knows when the space has taken it in, or another.
	t.Run("an update says what it takes the place of", func(t *testing.T) {
		before := create(t, service("versions", corev1.ServiceTypeClusterIP), metav1.CreateOptions{})
		if asked := s.host.asks("versions"); len(asked) != 1 || asked[0].ResourceVersion != "" {
			t.Errorf("for a new one the host was asked %v", asked)
		}
		after, err := services.Patch(t.Context(), "versions", types.MergePatchType, []byte(`{"spec":{"type":"NodePort"}}`), metav1.PatchOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if asked := s.host.asks("versions"); len(asked) != 1 || asked[0].ResourceVersion != before.ResourceVersion {
			t.Errorf("the host was asked %v, want once, with version %s", asked, before.ResourceVersion)
		}
		stale := after.DeepCopy()
		stale.ResourceVersion = before.ResourceVersion
		stale.Spec.Ports = append(stale.Spec.Ports, corev1.ServicePort{Name: "more", Port: 81})
		if _, err := services.Update(t.Context(), stale, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
			t.Errorf("one that comes too late: got %v", err)
		}
		if asked := s.host.asks("versions"); len(asked) > 0 {
			t.Errorf("for one that comes too late the host was asked %v", asked)
		}
	})
	t.Run("an update that needs nothing asks for nothing", func(t *testing.T) {
		if _, err := services.Patch(t.Context(), "new", types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`), metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
		if asked := s.host.asks("new"); len(asked) > 0 {
			t.Errorf("the host was asked %v", asked)
		}
	})
	t.Run("what is forbidden is not asked for", func(t *testing.T) {
		v := service("forbidden", corev1.ServiceTypeClusterIP)
		v.Spec.ExternalIPs = []string{"192.0.2.1"}
		if _, err := services.Create(t.Context(), v, metav1.CreateOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "spec.externalIPs") {
			t.Errorf("got %v", err)
		}
		if asked := s.host.asks("forbidden"); len(asked) > 0 {
			t.Errorf("the host was asked %v", asked)
		}
		_, err := services.Patch(context.WithoutCancel(t.Context()), "new", types.MergePatchType, []byte(`{"spec":{"externalIPs":["192.0.2.1"]}}`), metav1.PatchOptions{})
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "spec.externalIPs") {
			t.Errorf("by an update: got %v", err)
		}
	})
}

// What the host says against a service reaches the tenant without the host's
// names for things (N1).
func TestTheHostsRefusalsAreToldInTheSpacesTerms(t *testing.T) {
	s := startSpace(t)
	hostName := "guarded--default--web"
	resource := schema.GroupResource{Resource: "services"}
	tests := map[string]struct {
		reason string
		err    error
		is     func(error) bool
		says   string
	}{
		"a port in use": {
			"the tenant can choose another",
			apierrors.NewInvalid(schema.GroupKind{Kind: "Service"}, hostName, field.ErrorList{
				field.Invalid(field.NewPath("spec", "ports").Index(0).Child("nodePort"), 30000, "provided port is already allocated"),
			}),
			apierrors.IsForbidden, "spec.ports[0].nodePort",
		},
		"the quota": {
			"the tenant can delete some",
			apierrors.NewForbidden(resource, hostName, errors.New("exceeded quota: berth, requested: services=1, used: services=100, limited: services=100")),
			apierrors.IsForbidden, "quota for services is used up",
		},
		"a host that is down": {
			"the tenant can only wait, and clients do so by themselves", errors.New("dial tcp 192.0.2.7:6443: connection refused"),
			func(err error) bool {
				_, waits := apierrors.SuggestsClientDelay(err)
				return waits && apierrors.IsServiceUnavailable(err)
			}, "try again",
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s.host.fail(test.err)
			_, err := s.outside.CoreV1().Services("default").Create(t.Context(), service("web", corev1.ServiceTypeClusterIP), metav1.CreateOptions{})
			if !test.is(err) || !strings.Contains(err.Error(), test.says) {
				t.Errorf("%s: got %v, want %q", test.reason, err, test.says)
			}
			if err != nil && (strings.Contains(err.Error(), hostName) || strings.Contains(err.Error(), "192.0.2.7")) {
				t.Errorf("names the host's object or address: %v", err)
			}
		})
	}
}

// S4, L3: the ports of all Services of a space together are bounded, and the host is not asked for more.
func TestHostilePortsOfAllServicesTogetherAreBounded(t *testing.T) {
	s := startSpace(t)
	services := s.outside.CoreV1().Services("default")
	of := func(name string, ports int) *corev1.Service {
		v := service(name, corev1.ServiceTypeClusterIP)
		v.Spec.Ports = nil
		for i := range ports {
			v.Spec.Ports = append(v.Spec.Ports, corev1.ServicePort{Name: fmt.Sprintf("p%d", i), Port: int32(1000 + i)})
		}
		return v
	}
	create := func(name string, ports int) error {
		_, err := services.Create(t.Context(), of(name, ports), metav1.CreateOptions{})
		return err
	}
	refused := func(what string, err error) {
		t.Helper()
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "spec.ports") ||
			!strings.Contains(err.Error(), "limit service-ports-total is reached") || !strings.Contains(err.Error(), "of 250 in use: delete Services") {
			t.Errorf("%s gets %v", what, err)
		}
	}
	for _, name := range []string{"a", "b"} {
		if err := create(name, 100); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), testTimeout)
	defer cancel()
	for s.account.Used(bounds.ServicePortsTotal) < 201 { // kubernetes has one
		if _, err := services.Get(ctx, "kubernetes", metav1.GetOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	for _, ports := range []int{50, 100} {
		err := create("c", ports)
		refused("a service too many", err)
		if err != nil && !strings.Contains(err.Error(), fmt.Sprintf("%d ports asked, 201 of 250", ports)) {
			t.Errorf("a service of %d ports gets %v", ports, err)
		}
		if asked := s.host.asks("c"); len(asked) > 0 {
			t.Errorf("the host was asked for a service of %d ports", ports)
		}
	}
	// Those that come at once pass no more than there is place for: kubernetes has one.
	var all sync.WaitGroup
	var made atomic.Int64
	for i := range 10 {
		all.Go(func() {
			if create(fmt.Sprintf("race-%d", i), 20) == nil {
				made.Add(1)
			}
		})
	}
	all.Wait()
	if made.Load() > 2 || s.account.Used(bounds.ServicePortsTotal) > 250 {
		t.Errorf("of 10 at once %d are made, and %d ports are in use", made.Load(), s.account.Used(bounds.ServicePortsTotal))
	}
	a, err := services.Get(t.Context(), "a", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	a.Spec.Ports = a.Spec.Ports[:10]
	if a, err = services.Update(t.Context(), a, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := create("d", 50); err != nil {
		t.Errorf("after ports were removed: %v", err)
	}
	a.Spec.Ports = of("a", 100).Spec.Ports
	_, err = services.Update(t.Context(), a, metav1.UpdateOptions{})
	refused("a service that grows", err)
	if err := services.Delete(t.Context(), "b", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := services.Update(t.Context(), a, metav1.UpdateOptions{}); err != nil {
		t.Errorf("after one was deleted: %v", err)
	}
	list, err := services.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var want int64
	for _, v := range list.Items {
		want += int64(len(v.Spec.Ports))
	}
	if got := s.account.Used(bounds.ServicePortsTotal); got != want {
		t.Errorf("%d ports are counted, there are %d", got, want)
	}
}

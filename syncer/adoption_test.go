// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/translate"
)

// typed is a service of a type; "headless" is one, too.
func typed(name string, kind corev1.ServiceType, ports ...int32) *corev1.Service {
	v := newService(name, "")
	v.Namespace = "default"
	switch kind {
	case "headless":
		v.Spec.ClusterIP, kind = corev1.ClusterIPNone, corev1.ServiceTypeClusterIP
	case corev1.ServiceTypeExternalName:
		v.Spec.ExternalName, v.Spec.Selector = "example.com", nil
	}
	v.Spec.Type, v.Spec.Ports = kind, nil
	for _, port := range ports {
		v.Spec.Ports = append(v.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint("p", port), Protocol: corev1.ProtocolTCP, Port: port})
	}
	return v
}

// allocations is what the host's services are, and what it has given them.
func (env *testEnv) allocations(ctx context.Context) (map[string]string, error) {
	list, err := env.host.CoreV1().Services(env.space.HostNamespace()).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	given := map[string]string{}
	for _, s := range list.Items {
		given[s.Name] = fmt.Sprint(s.UID, s.Spec.String(), s.Labels)
	}
	return given, nil
}

// adopting is an environment without a syncer, whose space has some services, and a
// host by which others adopt them.
func adopting(t *testing.T, name string, have ...*corev1.Service) (*testEnv, *syncer.Host) {
	t.Helper()
	env := newEnv(t, name)
	env.begin(nil)
	for _, v := range have {
		must(t, env.virtual.CoreV1().Services("default").Create, v)
	}
	env.play([]step{{"come to rest", env.alike}})
	if err := env.kill(); err != nil {
		t.Fatal(err)
	}
	host, err := syncer.NewHost(env.cluster.Config(), env.options)
	if err != nil {
		t.Fatal(err)
	}
	return env, host
}

// D2: in a space whose objects are all about to be others, a host service is adopted
// by the service of its name. Until they have come it loses nothing; if they do not
// come after all, it is as it was.
func TestAServiceIsAdoptedAndTakenBack(t *testing.T) {
	t.Parallel()
	const (
		none     = corev1.ServiceType("headless")
		cluster  = corev1.ServiceTypeClusterIP
		node     = corev1.ServiceTypeNodePort
		balancer = corev1.ServiceTypeLoadBalancer
	)
	type pair struct {
		have, want   *corev1.Service
		stays, later bool // the host's is what it was; it waits for the syncer
	}
	pairs := map[string]pair{
		"it selects others":               {typed("plain", cluster, 80), typed("plain", cluster, 8080), true, false},
		"the host has none":               {nil, typed("new", node, 80), false, false},
		"it has no load balancer":         {typed("balanced", balancer, 80), typed("balanced", cluster, 80), true, false},
		"it has as many node ports":       {typed("ports", node, 80, 443), typed("ports", node, 80), true, false},
		"its node ports, without the LB":  {typed("lower", balancer, 80), typed("lower", node, 80), true, false},
		"it has no address":               {typed("bare", cluster, 80), typed("bare", none, 80), true, true},
		"it has none, as the one that is": {typed("headless", none, 80), typed("headless", none, 81), true, false},
	}
	var have, want []*corev1.Service
	var reasons []string
	for reason, p := range pairs {
		if p.have != nil {
			have = append(have, p.have)
		}
		p.want.Spec.Selector = map[string]string{"app": "another"}
		reasons, want = append(reasons, reason), append(want, p.want)
	}
	env, reserver := adopting(t, "adopt", have...)
	if err := env.host.CoreV1().ResourceQuotas(env.space.HostNamespace()).Delete(t.Context(), "berth", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err) // it lets a space have few node ports
	}
	before, err := env.allocations(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got, err := reserver.AdoptServices(t.Context(), env.space, want)
	if err != nil {
		t.Fatal(err)
	}
	during, err := env.allocations(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for i, reason := range reasons {
		p, hostName := pairs[reason], env.space.HostName("default", want[i].Name, translate.LimitLabel)
		if p.stays != (before[hostName] == during[hostName]) {
			t.Errorf("%s: it was %s, and is %s", reason, before[hostName], during[hostName])
		}
		if p.later != (got[i] == nil) {
			t.Errorf("%s: got %v", reason, got[i])
		}
		if got[i] == nil {
			continue
		}
		host, err := env.hostService(t.Context(), want[i].Name)
		if err != nil {
			t.Fatal(err)
		}
		if id, _ := translate.IdentityOf(host); id.UID != "" {
			t.Errorf("%s: marked as %v, and is not anybody's yet", reason, id)
		}
		checkAdopted(t, reason, want[i], got[i], host)
		if p.have == nil && host.Spec.Selector["berth.dev/reserved"] == "" { // which no pod bears
			t.Errorf("%s: it leads to the pods that run: %v", reason, host.Spec.Selector)
		}
	}

	env.begin(nil)
	must(t, env.virtual.CoreV1().Services("default").Create, typed("new", node, 80)) // or it is there for a minute
	env.play([]step{{"see it as it was", env.alike}})
	if made, err := env.hostService(t.Context(), "new"); err != nil || made.Spec.Selector["berth.dev/reserved"] != "" {
		t.Errorf("what was made leads to no pod still: %v (%v)", made.Spec.Selector, err)
	}
	after, err := env.allocations(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, was := range before {
		if now := after[name]; now != was {
			t.Errorf("%s was %s, and is %s", name, was, now)
		}
	}
}

// checkAdopted: what a service is told to show is what it asked for, with what
// the host has.
func checkAdopted(t *testing.T, reason string, want, got, host *corev1.Service) {
	t.Helper()
	if got.Spec.Type != want.Spec.Type || len(got.Spec.Ports) != len(want.Spec.Ports) || got.Spec.HealthCheckNodePort != 0 {
		t.Errorf("%s: got %v", reason, got.Spec)
	}
	if got.Spec.ClusterIP == "" || got.Spec.ClusterIP != host.Spec.ClusterIP || (got.Spec.ClusterIP == corev1.ClusterIPNone) != (want.Spec.ClusterIP == corev1.ClusterIPNone) {
		t.Errorf("%s: got address %s, the host has %s", reason, got.Spec.ClusterIP, host.Spec.ClusterIP)
	}
	for _, p := range got.Spec.Ports {
		exposed := want.Spec.Type == corev1.ServiceTypeNodePort || want.Spec.Type == corev1.ServiceTypeLoadBalancer
		there := false
		for _, h := range host.Spec.Ports {
			there = there || h.Port == p.Port && h.NodePort == p.NodePort
		}
		if exposed != (p.NodePort != 0) || exposed && !there {
			t.Errorf("%s: got port %v, the host has %v", reason, p, host.Spec.Ports)
		}
	}
}

// D2: if one service can't be had, all that are there are as they were, and none
// is left that was made: nothing is lost to a restore that fails.
func TestServicesAreAdoptedAllOrNone(t *testing.T) {
	t.Parallel()
	const cluster, node, balancer = corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort, corev1.ServiceTypeLoadBalancer
	env, reserver := adopting(t, "adopt-none",
		typed("plain", cluster, 80), typed("bare", cluster, 80), typed("named", corev1.ServiceTypeExternalName), typed("headless", "headless", 80), typed("balanced", balancer, 80), typed("ports", node, 80), typed("going", cluster, 80))
	hosts := env.host.CoreV1().Services(env.space.HostNamespace())
	going, err := env.hostService(t.Context(), "going")
	if err != nil {
		t.Fatal(err)
	}
	going.Finalizers = []string{"service.kubernetes.io/load-balancer-cleanup"}
	if going, err = hosts.Update(t.Context(), going, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := hosts.Delete(t.Context(), going.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if _, err := hosts.Patch(context.WithoutCancel(t.Context()), going.Name, "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{}); err != nil {
			t.Error(err)
		}
	}()
	foreign := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: env.space.HostName("default", "foreign", translate.LimitLabel)}, Spec: newService("foreign", "").Spec}
	must(t, hosts.Create, foreign)
	env.noMoreNodePorts(t)

	versionsOf := func() map[string]string {
		t.Helper()
		list, err := hosts.List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		versions := map[string]string{}
		for _, s := range list.Items {
			versions[s.Name] = string(s.UID) + "@" + s.ResourceVersion
		}
		return versions
	}
	before := versionsOf()
	for reason, c := range map[string]struct {
		want *corev1.Service
		says string
	}{
		"none is immutable":               {typed("headless", cluster, 80), "delete the existing service in the space"},
		"it has other node ports":         {typed("ports", node, 8080), "delete the existing service in the space"},
		"the load balancer is not for it": {typed("balanced", node, 80, 443), "delete the existing service in the space"},
		"it is going":                     {typed("going", cluster, 80), "try again when it is deleted"},
		"it is another's":                 {typed("foreign", cluster, 80), "host name taken"},
		"it has no node port":             {typed("bare", node, 80), "delete the existing service in the space"},
		"it has no address":               {typed("named", cluster, 80), "delete the existing service in the space"},
		"the quota does not let it come":  {typed("zealous", node, 80), "exceeded quota"},
	} {
		_, err := reserver.AdoptServices(t.Context(), env.space, []*corev1.Service{typed("fresh", cluster, 80), typed("plain", cluster, 8080), c.want})
		if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), "default/"+c.want.Name) {
			t.Errorf("%s: %v, want %q", reason, err, c.says)
		}
		if diff := cmp.Diff(before, versionsOf()); diff != "" {
			t.Errorf("%s: -before +after:\n%s", reason, diff)
		}
	}
	// Without an address, it need not wait for it.
	if got, err := reserver.AdoptServices(t.Context(), env.space, []*corev1.Service{typed("going", "headless", 80)}); err != nil || got[0] != nil {
		t.Errorf("got %v (%v)", got, err)
	}
}

// noMoreNodePorts has the host give the space no node ports beside those that it has.
func (env *testEnv) noMoreNodePorts(t *testing.T) {
	t.Helper()
	list, err := env.host.CoreV1().Services(env.space.HostNamespace()).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	used := int64(0)
	for _, s := range list.Items {
		for _, p := range s.Spec.Ports {
			if p.NodePort != 0 {
				used++
			}
		}
	}
	quotas := env.host.CoreV1().ResourceQuotas(env.space.HostNamespace())
	all := corev1.ResourceList{corev1.ResourceServicesNodePorts: *resource.NewQuantity(used, resource.DecimalSI)}
	quota := must(t, quotas.Create, &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Name: "full"}, Spec: corev1.ResourceQuotaSpec{Hard: all}})
	testhost.Eventually(t, "see the quota counted", func(ctx context.Context) error {
		// Where the host's controller does not, this does.
		current, err := quotas.Get(ctx, quota.Name, metav1.GetOptions{})
		if err != nil || len(current.Status.Used) > 0 {
			return err
		}
		current.Status = corev1.ResourceQuotaStatus{Hard: all, Used: all}
		_, err = quotas.UpdateStatus(ctx, current, metav1.UpdateOptions{})
		return err
	})
}

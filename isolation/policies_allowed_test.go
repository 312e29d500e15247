// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation_test

import (
	"fmt"
	"net/netip"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/pod"
)

// S1: what is translated from whatever a tenant asks for, and what Berth makes
// for itself, passes.
func TestThePoliciesLetSyncersWork(t *testing.T) {
	g, ctx := startPolicedHost(t), t.Context()
	create := func(o client.Object) error { // a conflict is over the quota, which is counted meanwhile
		return retry.OnError(retry.DefaultBackoff, apierrors.IsConflict, func() error { return g.account.Create(ctx, o) })
	}
	space := g.space
	space.Pods = translate.PodsEndpoint{Address: netip.MustParseAddr("10.9.9.9"), APIPort: 7444, DNSPort: 7453}
	var many []networkingv1.NetworkPolicyPeer
	for i := range 100 {
		many = append(many, block(fmt.Sprintf("%d.0.0.0/8", i+1)), networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{}})
	}
	for name, spec := range map[string]networkingv1.NetworkPolicySpec{
		"nothing":    {},
		"everyone":   {Ingress: []networkingv1.NetworkPolicyIngressRule{{}}, Egress: []networkingv1.NetworkPolicyEgressRule{{}}},
		"namespaces": policy("", networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{}}, networkingv1.NetworkPolicyPeer{PodSelector: &metav1.LabelSelector{}}).Spec,
		"blocks":     policy("", block("0.0.0.0/0"), block("8.0.0.0/6", "8.8.8.0/24"), block("10.0.0.0/8"), block("::/0"), block("2001:db8::/32"), block("192.0.0.0/8")).Spec,
		"many":       policy("", many...).Spec,
	} {
		virtual := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "u"}, Spec: spec}
		host, _ := space.NetworkPolicy(virtual, []*corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "default"}}})
		if err := create(host); err != nil {
			t.Errorf("a policy for %s: %v", name, err)
		}
		host.Annotations[translate.Domain+"/changed"] = "yes"
		if err := g.account.Update(ctx, host); err != nil {
			t.Errorf("a change of a policy for %s: %v", name, err)
		}
		if err := g.account.Delete(ctx, host); err != nil {
			t.Errorf("the end of a policy for %s: %v", name, err)
		}
	}
	if err := create(space.DNSService()); err != nil {
		t.Errorf("the nameserver: %v", err)
	}
	for _, slice := range space.PodsEndpoints() {
		if err := create(slice); err != nil {
			t.Errorf("the way to Berth: %v", err)
		}
		if err := g.account.Delete(ctx, &discoveryv1.EndpointSlice{ObjectMeta: slice.ObjectMeta}); err != nil {
			t.Errorf("the way to Berth: %v", err)
		}
	}
	for _, patch := range []string{
		`{"conditions":[{"type":"` + gate + `","status":"True"}]}`, `{"conditions":[{"type":"` + gate + `","status":"False"}]}`,
		`{"conditions":[{"type":"` + gate + `","$patch":"delete"}]}`,
	} {
		err := g.account.Status().Patch(ctx, g.pod.DeepCopy(), client.RawPatch(types.StrategicMergePatchType, []byte(`{"status":`+patch+`}`)))
		if err != nil {
			t.Errorf("an answer to a readiness gate, %s: %v", patch, err)
		}
	}
	if err := create(pod.ToHost(space, fullPod(), pod.Surroundings{})); err != nil {
		t.Errorf("a pod that asks for all that it may: %v", err)
	}
	// The host adds the class's node selector and tolerations.
	classed := hostPod("mine--default--classed")
	classed.Spec.RuntimeClassName = ptr.To("sandboxed")
	if err := create(classed); err != nil || classed.Spec.NodeSelector["runtime"] != "sandboxed" {
		t.Errorf("a pod of a runtime class, with %v: %v", classed.Spec.NodeSelector, err)
	}
	// A claim without a class gets the host's default one.
	plain := &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "plain", UID: "u"}, Spec: claim("", func(c *corev1.PersistentVolumeClaimSpec) {
		c.DataSourceRef = &corev1.TypedObjectReference{Kind: "PersistentVolumeClaim", Name: "data"}
	}).Spec}
	if err := create(space.Claim(plain)); err != nil {
		t.Errorf("a claim that copies another: %v", err)
	}
	service := space.Service(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "lb", UID: "u"}, Spec: corev1.ServiceSpec{
		Type: corev1.ServiceTypeLoadBalancer, Selector: map[string]string{"app": "web"}, Ports: []corev1.ServicePort{{Port: 80}},
	}})
	service.Annotations["cloud.google.com/neg"] = `{"ingress":true}` // GKE's own admission puts it there
	// A service that is older than the bound of its ports, and one that gets a selector before it is exposed.
	wide := space.Service(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "wide", UID: "u"}, Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "web"}, Ports: ports(101),
	}})
	if err := g.admin.Create(ctx, wide); err != nil {
		t.Fatal(err)
	}
	wide.Spec.Selector["tier"] = "front"
	if err := g.account.Update(ctx, wide); err != nil {
		t.Errorf("another selector of a service with many ports: %v", err)
	}
	hand := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "hand", UID: "u"}, Spec: corev1.ServiceSpec{Ports: ports(1)}}
	hosts := space.Service(hand)
	if err := create(hosts); err != nil {
		t.Errorf("a service without a selector: %v", err)
	}
	hand.Spec.Type = corev1.ServiceTypeNodePort
	exposed := space.Service(hand)
	for _, step := range []*corev1.Service{translate.Unexposed(exposed), exposed} {
		translate.PushService(step, hosts)
		if err := g.account.Update(ctx, hosts); err != nil {
			t.Errorf("a service that is exposed in two steps: %v", err)
		}
	}
	budget := space.Budget(&policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "other", UID: "u"}}, 3)
	for o, ask := range map[client.Object]func(){
		// What others wrote stays.
		service: func() {
			service.Annotations["metallb.io/ip-allocated-from-pool"], service.Spec.LoadBalancerIP = "outside", "192.0.2.1"
		},
		budget: func() { budget.Spec.MinAvailable = ptr.To(intstr.FromInt32(2)) },
		claim("mine--default--data", func(*corev1.PersistentVolumeClaimSpec) {}): func() {},
	} {
		if _, there := o.(*corev1.PersistentVolumeClaim); !there {
			if err := create(o); err != nil {
				t.Errorf("%s: %v", o.GetName(), err)
			}
		}
		for _, write := range []func() error{
			func() error { ask(); return g.admin.Update(ctx, o) },
			func() error { o.GetLabels()[translate.Domain+"/changed"] = "yes"; return g.account.Update(ctx, o) },
		} { // controllers write to it, too
			if err := retry.RetryOnConflict(retry.DefaultBackoff, func() error {
				if err := g.admin.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
					return err
				}
				return write()
			}); err != nil {
				t.Errorf("a change of %s: %v", o.GetName(), err)
			}
		}
	}
	// What an admin gives a service account stays, and does not stop the syncer.
	runner := &corev1.ServiceAccount{ObjectMeta: meta("berth-mine", "mine--default--runner", "mine")}
	runner.Annotations = map[string]string{"eks.amazonaws.com/role-arn": "shop"}
	if err := g.admin.Update(ctx, runner); err != nil {
		t.Fatal(err)
	}
	runner.Labels[translate.Domain+"/changed"] = "yes"
	if err := g.account.Update(ctx, runner); err != nil {
		t.Errorf("a service account that an admin gave an identity: %v", err)
	}
	// It is not about others.
	if err := g.admin.Update(ctx, policy("berth", networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{}})); err != nil {
		t.Errorf("the platform's admin: %v", err)
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/syncer/kinds"
	"github.com/berth-dev/berth/translate"
)

// synced begins a syncer of a new space with these switches.
func synced(t *testing.T, name string, switches ...string) *bed {
	t.Helper()
	b := newBed(t, name)
	parsed, err := kinds.Parse(switches)
	if err != nil {
		t.Fatal(err)
	}
	b.options = syncer.Options{Sync: parsed, IngressAnnotations: []string{"example.com/allowed"}}
	b.build(t) // for the rights that the switches take
	b.begin(nil)
	return b
}

// must creates an object, and is for what no test is about.
func must[T metav1.Object](t *testing.T, create func(context.Context, T, metav1.CreateOptions) (T, error), o T) T {
	t.Helper()
	made, err := create(t.Context(), o, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// awaited waits until an object is there and check, if any, finds nothing wrong.
func awaited[T metav1.Object](t *testing.T, what string, get func(context.Context, string, metav1.GetOptions) (T, error), name string, check func(T) error) (o T) {
	t.Helper()
	testhost.Eventually(t, what, func(ctx context.Context) (err error) {
		if o, err = get(ctx, name, metav1.GetOptions{}); err == nil && check != nil {
			err = check(o)
		}
		return err
	})
	return o
}

func awaitedGone[T metav1.Object](t *testing.T, what string, get func(context.Context, string, metav1.GetOptions) (T, error), name string) {
	t.Helper()
	testhost.Eventually(t, what, func(ctx context.Context) error { return gone(get(ctx, name, metav1.GetOptions{})) })
}

func (b *bed) hostName(name string) string {
	return b.space.HostName("default", name, translate.LimitSubdomain)
}

// told waits for a warning about an object of the space that holds all words.
func (b *bed) told(t *testing.T, kind, name string, words ...string) {
	t.Helper()
	testhost.Eventually(t, "hear of "+kind+" "+name, func(ctx context.Context) error {
		events, err := b.virtual.CoreV1().Events("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		var messages []string
		for _, e := range events.Items {
			if e.InvolvedObject.Kind != kind || e.InvolvedObject.Name != name || e.Type != corev1.EventTypeWarning {
				continue
			}
			messages = append(messages, e.Message)
			if !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(e.Message, w) }) {
				return nil
			}
		}
		return fmt.Errorf("events are %q, want one with %q", messages, words)
	})
}

func (b *bed) ingressClass(t *testing.T, name string, labels map[string]string) {
	t.Helper()
	classes := b.host.NetworkingV1().IngressClasses()
	must(t, classes.Create, &networkingv1.IngressClass{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Spec: networkingv1.IngressClassSpec{Controller: "host.example/controller"},
	})
	t.Cleanup(func() { _ = classes.Delete(context.Background(), name, metav1.DeleteOptions{}) })
}

func shownToSpaces() map[string]string { return map[string]string{"berth.dev/show": "true"} }

func newIngress(name, class, host string) *networkingv1.Ingress {
	return &networkingv1.Ingress{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{"example.com/allowed": "yes", "nginx.ingress.kubernetes.io/server-snippet": "evil"}},
		Spec: networkingv1.IngressSpec{
			IngressClassName: &class,
			TLS:              []networkingv1.IngressTLS{{Hosts: []string{host}, SecretName: name + "-cert"}},
			Rules: []networkingv1.IngressRule{{Host: host, IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{
				Paths: []networkingv1.HTTPIngressPath{{Path: "/", PathType: ptr.To(networkingv1.PathTypePrefix), Backend: networkingv1.IngressBackend{
					Service: &networkingv1.IngressServiceBackend{Name: "web", Port: networkingv1.ServiceBackendPort{Number: 80}},
				}}},
			}}}},
		},
	}
}

// S1, S2, M4: an ingress goes down with its certificate and comes back with its
// address; one of a class that is not shown does not go.
func TestAnIngressOfAShownClassIsServed(t *testing.T) {
	t.Parallel()
	b := synced(t, "ingress")
	b.ingressClass(t, "ingress-public", shownToSpaces())
	b.ingressClass(t, "ingress-internal", nil)
	class := awaited(t, "see the class", b.virtual.NetworkingV1().IngressClasses().Get, "ingress-public", nil)
	if class.Spec.Controller != translate.IngressController {
		t.Errorf("the class tells of the host's controller %q", class.Spec.Controller)
	}
	ours, theirs := b.virtual.NetworkingV1().Ingresses("default"), b.host.NetworkingV1().Ingresses(b.space.HostNamespace())
	must(t, ours.Create, newIngress("shop", "ingress-public", "shop.ingress.example"))
	must(t, b.virtual.CoreV1().Secrets("default").Create, newSecret("shop-cert"))
	host := awaited(t, "see it on the host", theirs.Get, b.hostName("shop"), nil)
	if host.Annotations["example.com/allowed"] != "yes" || host.Annotations["nginx.ingress.kubernetes.io/server-snippet"] != "" {
		t.Errorf("annotations on the host: %v", host.Annotations)
	}
	awaited(t, "see its certificate on the host", b.host.CoreV1().Secrets(b.space.HostNamespace()).Get, b.hostName("shop-cert"), nil)

	host.Status.LoadBalancer.Ingress = []networkingv1.IngressLoadBalancerIngress{{IP: "203.0.113.7"}}
	if _, err := theirs.UpdateStatus(t.Context(), host, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaited(t, "see its address", ours.Get, "shop", func(v *networkingv1.Ingress) error {
		if len(v.Status.LoadBalancer.Ingress) != 1 || v.Status.LoadBalancer.Ingress[0].IP != "203.0.113.7" {
			return fmt.Errorf("status is %v", v.Status)
		}
		return nil
	})

	for name, class := range map[string]string{"internal": "ingress-internal", "missing": "no-such"} {
		must(t, ours.Create, newIngress(name, class, name+".ingress.example"))
		b.told(t, "Ingress", name, "spec.ingressClassName", class)
		if err := gone(theirs.Get(t.Context(), b.hostName(name), metav1.GetOptions{})); err != nil {
			t.Error(err)
		}
	}
	// What is not allowed any more is taken from the host, and what is taken back.
	classed := func(class string) {
		t.Helper()
		patch := fmt.Appendf(nil, `{"spec":{"ingressClassName":%q}}`, class)
		if _, err := ours.Patch(t.Context(), "shop", types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	classed("ingress-internal")
	awaitedGone(t, "see it gone from the host, as its class is not for spaces", theirs.Get, b.hostName("shop"))
	classed("ingress-public")
	awaited(t, "see it on the host again", theirs.Get, b.hostName("shop"), nil)
	if err := b.host.NetworkingV1().IngressClasses().Delete(t.Context(), "ingress-public", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitedGone(t, "see the class gone", b.virtual.NetworkingV1().IngressClasses().Get, "ingress-public")
	if err := ours.Delete(t.Context(), "shop", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitedGone(t, "see it gone from the host", theirs.Get, b.hostName("shop"))
	awaitedGone(t, "see its certificate gone from the host", b.host.CoreV1().Secrets(b.space.HostNamespace()).Get, b.hostName("shop-cert"))
}

// M4: the host's controller reaches for backends past the space's walls, so that
// none may lead it out of the space: not by a name, not by endpoints written by
// hand, not to the space's API, and not later either.
func TestNoIngressLeadsOutOfItsSpace(t *testing.T) {
	t.Parallel()
	b := synced(t, "wayout")
	b.ingressClass(t, "wayout-public", shownToSpaces())
	awaited(t, "see the class", b.virtual.NetworkingV1().IngressClasses().Get, "wayout-public", nil)
	services := b.virtual.CoreV1().Services("default")
	ours, theirs := b.virtual.NetworkingV1().Ingresses("default"), b.host.NetworkingV1().Ingresses(b.space.HostNamespace())
	service := func(name string, spec corev1.ServiceSpec) {
		spec.Ports = []corev1.ServicePort{{Port: 80}}
		must(t, services.Create, &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec})
	}
	ingress := func(name string) {
		v := newIngress(name, "wayout-public", name+".wayout.example")
		v.Spec.Rules[0].HTTP.Paths[0].Backend.Service.Name = name
		must(t, ours.Create, v)
	}
	elsewhere := corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName, ExternalName: "metrics-server.kube-system.svc"}
	service("name", elsewhere)
	service("hand", corev1.ServiceSpec{})
	for _, name := range []string{"name", "hand", "kubernetes"} {
		ingress(name)
		b.told(t, "Ingress", name, "service["+name+"]", "name a service that selects pods")
		if err := gone(theirs.Get(t.Context(), b.hostName(name), metav1.GetOptions{})); err != nil {
			t.Error(err)
		}
	}

	ways := map[string]func(*corev1.Service){
		"becomes-name": func(v *corev1.Service) {
			v.Spec.Type, v.Spec.ExternalName, v.Spec.ClusterIP, v.Spec.ClusterIPs = elsewhere.Type, elsewhere.ExternalName, "", nil
		},
		"becomes-hand": func(v *corev1.Service) { v.Spec.Selector = nil },
	}
	change := func(name string, to func(*corev1.Service)) {
		t.Helper()
		testhost.Eventually(t, "change "+name, func(ctx context.Context) error {
			v, err := services.Get(ctx, name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			to(v)
			_, err = services.Update(ctx, v, metav1.UpdateOptions{})
			return err
		})
	}
	for name, way := range ways {
		ingress(name) // before there is a service, as on any cluster
		service(name, corev1.ServiceSpec{Selector: map[string]string{"app": "web"}})
		awaited(t, "see it on the host", theirs.Get, b.hostName(name), nil)
		change(name, way)
		awaitedGone(t, "see it gone from the host", theirs.Get, b.hostName(name))
		b.told(t, "Ingress", name, "service["+name+"]")
		change(name, func(v *corev1.Service) {
			v.Spec.Type, v.Spec.ExternalName, v.Spec.Selector = corev1.ServiceTypeClusterIP, "", map[string]string{"app": "web"}
		})
		awaited(t, "see it on the host again", theirs.Get, b.hostName(name), nil)
	}

	// Endpoints go down last: there is no moment at which the door leads to them.
	change("becomes-hand", ways["becomes-hand"])
	must(t, b.virtual.DiscoveryV1().EndpointSlices("default").Create, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: "hand", Labels: map[string]string{discoveryv1.LabelServiceName: "becomes-hand"}},
		AddressType: discoveryv1.AddressTypeIPv4, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"203.0.113.7"}}},
	})
	awaited(t, "see the endpoints on the host", b.host.DiscoveryV1().EndpointSlices(b.space.HostNamespace()).Get, b.hostName("hand"), nil)
	if err := gone(theirs.Get(t.Context(), b.hostName("becomes-hand"), metav1.GetOptions{})); err != nil {
		t.Error(err)
	}
}

// M4: a host name is its first claimant's, be it a space or the platform.
func TestAHostNameIsItsFirstClaimants(t *testing.T) {
	t.Parallel()
	first, second := synced(t, "claim-a"), synced(t, "claim-b")
	first.ingressClass(t, "claim-public", shownToSpaces())
	platform := newIngress("platform", "claim-public", "*.platform.claim.example")
	platform.Namespace = "default"
	must(t, first.host.NetworkingV1().Ingresses("default").Create, platform)
	t.Cleanup(func() {
		_ = first.host.NetworkingV1().Ingresses("default").Delete(context.Background(), "platform", metav1.DeleteOptions{})
	})
	for _, b := range []*bed{first, second} {
		awaited(t, "see the class", b.virtual.NetworkingV1().IngressClasses().Get, "claim-public", nil)
	}
	must(t, first.virtual.NetworkingV1().Ingresses("default").Create, newIngress("shop", "claim-public", "shop.claim.example"))
	awaited(t, "see the first on the host", first.host.NetworkingV1().Ingresses(first.space.HostNamespace()).Get, first.hostName("shop"), nil)

	ours, theirs := second.virtual.NetworkingV1().Ingresses("default"), second.host.NetworkingV1().Ingresses(second.space.HostNamespace())
	must(t, ours.Create, newIngress("thief", "claim-public", "shop.claim.example"))
	must(t, ours.Create, newIngress("below", "claim-public", "a.platform.claim.example"))
	second.told(t, "Ingress", "thief", "shop.claim.example", "in use")
	second.told(t, "Ingress", "below", "a.platform.claim.example", "in use")
	if all, err := theirs.List(t.Context(), metav1.ListOptions{}); err != nil || len(all.Items) > 0 {
		t.Errorf("on the host are %v, %v", all.Items, err)
	}

	if err := first.virtual.NetworkingV1().Ingresses("default").Delete(t.Context(), "shop", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaited(t, "have the name once it is free", theirs.Get, second.hostName("thief"), nil)
}

// S1, M4: a policy of the tenant's takes away from its pods what the wall lets
// through, and opens nothing that the wall does not.
func TestANetworkPolicyAppliesWithinTheWalls(t *testing.T) {
	t.Parallel()
	b := synced(t, "netpol")
	ours, theirs := b.virtual.NetworkingV1().NetworkPolicies("default"), b.host.NetworkingV1().NetworkPolicies(b.space.HostNamespace())
	walls, err := theirs.List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	pod := newPod("web")
	pod.Labels = map[string]string{"app": "web"}
	must(t, b.virtual.CoreV1().Pods("default").Create, pod)
	hostPods := b.host.CoreV1().Pods(b.space.HostNamespace())
	policed := func(want bool) func(*corev1.Pod) error {
		return func(h *corev1.Pod) error {
			_, ingress := h.Labels[translate.LabelPolicedIngress]
			_, egress := h.Labels[translate.LabelPolicedEgress]
			if ingress || egress != want {
				return fmt.Errorf("labels are %v", h.Labels)
			}
			return nil
		}
	}
	awaited(t, "see the pod", hostPods.Get, b.hostName("web"), policed(false))

	must(t, ours.Create, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "out"}, Spec: networkingv1.NetworkPolicySpec{
		PodSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeEgress},
		Egress: []networkingv1.NetworkPolicyEgressRule{
			{To: []networkingv1.NetworkPolicyPeer{{IPBlock: &networkingv1.IPBlock{CIDR: "169.254.169.254/32"}}}},
			{To: []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "a"}}}}},
		},
	}})
	named := func(want ...string) func(*networkingv1.NetworkPolicy) error {
		return func(h *networkingv1.NetworkPolicy) error {
			if len(h.Spec.Egress) != 1 || len(h.Spec.Egress[0].To) != 1 || h.Spec.Egress[0].To[0].PodSelector == nil {
				return fmt.Errorf("egress is to %v", h.Spec.Egress)
			}
			for _, e := range h.Spec.Egress[0].To[0].PodSelector.MatchExpressions {
				if e.Key == translate.LabelNamespace && slices.Equal(e.Values, want) {
					return nil
				}
			}
			if len(want) == 0 {
				return nil
			}
			return fmt.Errorf("egress is to %v, want %v", h.Spec.Egress, want)
		}
	}
	awaited(t, "see the policy on the host", theirs.Get, b.hostName("out"), named())
	awaited(t, "see the pod lose the wall's opening", hostPods.Get, b.hostName("web"), policed(true))
	b.told(t, "NetworkPolicy", "out", "spec.egress[0].to[0].ipBlock.cidr", "169.254.169.254/32")

	must(t, b.virtual.CoreV1().Namespaces().Create, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"team": "a"}}})
	awaited(t, "see a namespace join", theirs.Get, b.hostName("out"), named("shop"))

	if err := ours.Delete(t.Context(), "out", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitedGone(t, "see the policy gone", theirs.Get, b.hostName("out"))
	awaited(t, "see the pod open again", hostPods.Get, b.hostName("web"), policed(false))
	after, err := theirs.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(after.Items) != len(walls.Items) || len(walls.Items) == 0 {
		t.Errorf("of the walls %d are left, were %d: %v", len(after.Items), len(walls.Items), err)
	}
}

// S1: what is switched off, or is by default, stays in the space.
func TestWhatIsSwitchedOffStaysInTheSpace(t *testing.T) {
	t.Parallel()
	b := synced(t, "off", "networkpolicies=off", "services=off")
	must(t, b.virtual.NetworkingV1().NetworkPolicies("default").Create, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "off"}})
	must(t, b.virtual.PolicyV1().PodDisruptionBudgets("default").Create, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "off"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}},
	})
	must(t, b.virtual.CoreV1().Pods("default").Create, newPod("web"))
	pod := awaited(t, "see a pod, which came after them", b.host.CoreV1().Pods(b.space.HostNamespace()).Get, b.hostName("web"), nil)
	for _, key := range []string{translate.LabelPolicedIngress, translate.LabelBudget} {
		if _, ok := pod.Labels[key]; ok {
			t.Errorf("the pod is marked %s", key)
		}
	}
	if pod.Spec.ServiceAccountName != "default" {
		t.Errorf("the pod runs as %s", pod.Spec.ServiceAccountName)
	}
	testhost.Eventually(t, "be idle", func(context.Context) error {
		if !b.life.syncer.Idle() {
			return errors.New("the syncer is at work")
		}
		return nil
	})
	for what, get := range map[string]func() error{
		"policy": func() error {
			return gone(b.host.NetworkingV1().NetworkPolicies(b.space.HostNamespace()).Get(t.Context(), b.hostName("off"), metav1.GetOptions{}))
		},
		"budget": func() error {
			return gone(b.host.PolicyV1().PodDisruptionBudgets(b.space.HostNamespace()).Get(t.Context(), b.hostName("off"), metav1.GetOptions{}))
		},
	} {
		if err := get(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// S1: with "all", config maps and secrets go down whether a pod refers to them
// or not; what went while no syncer ran is gone from the host, too.
func TestAllConfigMapsGoDownIfTheSwitchSaysSo(t *testing.T) {
	t.Parallel()
	b := synced(t, "all", "configmaps=all", "secrets=all")
	maps, hostMaps := b.virtual.CoreV1().ConfigMaps("default"), b.host.CoreV1().ConfigMaps(b.space.HostNamespace())
	for _, name := range []string{"now", "later"} {
		must(t, maps.Create, newConfigMap(name))
		awaited(t, "see the config map", hostMaps.Get, b.hostName(name), nil)
	}
	must(t, b.virtual.CoreV1().Secrets("default").Create, newSecret("s"))
	awaited(t, "see the secret", b.host.CoreV1().Secrets(b.space.HostNamespace()).Get, b.hostName("s"), nil)
	if err := maps.Delete(t.Context(), "now", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitedGone(t, "see the config map gone", hostMaps.Get, b.hostName("now"))
	if err := b.kill(); err != nil {
		t.Fatal(err)
	}
	if err := maps.Delete(t.Context(), "later", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	b.begin(nil)
	awaitedGone(t, "see the other config map gone", hostMaps.Get, b.hostName("later"))
}

// S1: with the switch on, pods run as accounts of their own, which hold no token.
func TestServiceAccountsAreIdentitiesOnly(t *testing.T) {
	t.Parallel()
	b := synced(t, "accounts", "serviceaccounts=on")
	must(t, b.virtual.CoreV1().ServiceAccounts("default").Create, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Name: "builder", Annotations: map[string]string{"eks.amazonaws.com/role-arn": "the platform's"},
	}})
	pod := newPod("web")
	pod.Spec.ServiceAccountName = "builder"
	must(t, b.virtual.CoreV1().Pods("default").Create, pod)
	host := awaited(t, "see the pod", b.host.CoreV1().Pods(b.space.HostNamespace()).Get, b.hostName("web"), nil)
	if host.Spec.ServiceAccountName != b.hostName("builder") || ptr.Deref(host.Spec.AutomountServiceAccountToken, true) {
		t.Errorf("the pod runs as %s, and gets a token: %v", host.Spec.ServiceAccountName, host.Spec.AutomountServiceAccountToken)
	}
	for _, v := range host.Spec.Volumes {
		if strings.HasPrefix(v.Name, "kube-api-access") && v.Projected != nil {
			for _, source := range v.Projected.Sources {
				if source.ServiceAccountToken != nil {
					t.Errorf("the pod gets a token of the host's: %v", source)
				}
			}
		}
	}
	account, err := b.host.CoreV1().ServiceAccounts(b.space.HostNamespace()).Get(t.Context(), b.hostName("builder"), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if ptr.Deref(account.AutomountServiceAccountToken, true) || len(account.Secrets)+len(account.ImagePullSecrets) > 0 || account.Annotations["eks.amazonaws.com/role-arn"] != "" {
		t.Errorf("the account is more than a name: %v", account)
	}
}

// S7: a pod that runs keeps its account, and is synced on, when the space has it
// no more.
func TestAPodOutlivesItsServiceAccount(t *testing.T) {
	t.Parallel()
	b := synced(t, "outlives", "serviceaccounts=on")
	accounts, ours := b.virtual.CoreV1().ServiceAccounts("default"), b.virtual.CoreV1().Pods("default")
	must(t, accounts.Create, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "builder"}})
	pod := newPod("web")
	pod.Spec.ServiceAccountName = "builder"
	must(t, ours.Create, pod)
	theirs := b.host.CoreV1().Pods(b.space.HostNamespace())
	awaited(t, "see the pod", theirs.Get, b.hostName("web"), nil)
	if err := accounts.Delete(t.Context(), "builder", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitedGone(t, "see the account gone", b.host.CoreV1().ServiceAccounts(b.space.HostNamespace()).Get, b.hostName("builder"))
	if _, err := ours.Patch(t.Context(), "web", types.MergePatchType, []byte(`{"metadata":{"labels":{"late":"yes"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	awaited(t, "see the label on the host", theirs.Get, b.hostName("web"), func(h *corev1.Pod) error {
		if h.Labels["late"] != "yes" || h.Spec.ServiceAccountName != b.hostName("builder") {
			return fmt.Errorf("labels are %v, the account is %s", h.Labels, h.Spec.ServiceAccountName)
		}
		return nil
	})
}

// S2, M4: pods have the priorities and runtimes of the host that are shown, and
// no others.
func TestPodsNameTheClassesThatAreShown(t *testing.T) {
	t.Parallel()
	b := synced(t, "classes")
	priorities, runtimes := b.host.SchedulingV1().PriorityClasses(), b.host.NodeV1().RuntimeClasses()
	priority := func(name string, value int32, labels map[string]string) *schedulingv1.PriorityClass {
		return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Value: value}
	}
	must(t, priorities.Create, priority("classes-shown", 7, shownToSpaces()))
	must(t, priorities.Create, priority("classes-hidden", 1_000_000, nil))
	must(t, runtimes.Create, &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "classes-shown", Labels: shownToSpaces()}, Handler: "of-the-host"})
	t.Cleanup(func() {
		for _, name := range []string{"classes-shown", "classes-hidden"} {
			_ = priorities.Delete(context.Background(), name, metav1.DeleteOptions{})
			_ = runtimes.Delete(context.Background(), name, metav1.DeleteOptions{})
		}
	})
	awaited(t, "see the priority", b.virtual.SchedulingV1().PriorityClasses().Get, "classes-shown", nil)
	class := awaited(t, "see the runtime", b.virtual.NodeV1().RuntimeClasses().Get, "classes-shown", nil)
	if class.Handler != translate.RuntimeHandler {
		t.Errorf("the class tells of the host's handler %q", class.Handler)
	}
	// The tenant makes what it must not have.
	must(t, b.virtual.SchedulingV1().PriorityClasses().Create, priority("classes-hidden", 1_000_000, nil))
	must(t, b.virtual.NodeV1().RuntimeClasses().Create, &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: "own"}, Handler: "runc"})

	pod := func(name, priority, runtime string) *corev1.Pod {
		v := newPod(name)
		v.Spec.PriorityClassName = priority
		if runtime != "" {
			v.Spec.RuntimeClassName = &runtime
		}
		return must(t, b.virtual.CoreV1().Pods("default").Create, v)
	}
	hostPods := b.host.CoreV1().Pods(b.space.HostNamespace())
	pod("shown", "classes-shown", "classes-shown")
	host := awaited(t, "see the pod", hostPods.Get, b.hostName("shown"), nil)
	if ptr.Deref(host.Spec.Priority, 0) != 7 || ptr.Deref(host.Spec.RuntimeClassName, "") != "classes-shown" {
		t.Errorf("it has priority %v and runtime %v", host.Spec.Priority, host.Spec.RuntimeClassName)
	}
	pod("hidden", "classes-hidden", "")
	host = awaited(t, "see the pod with a priority of its own", hostPods.Get, b.hostName("hidden"), nil)
	if ptr.Deref(host.Spec.Priority, 0) != 0 || host.Spec.PriorityClassName != "" {
		t.Errorf("it has the host's priority %v", host.Spec.Priority)
	}
	pod("own", "", "own")
	b.told(t, "Pod", "own", "spec.runtimeClassName", `"own"`)
	if err := gone(hostPods.Get(t.Context(), b.hostName("own"), metav1.GetOptions{})); err != nil {
		t.Error(err)
	}
}

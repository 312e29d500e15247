// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy_test

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/syncer/kinds"
	"github.com/berth-dev/berth/tenancy"
	"github.com/berth-dev/berth/translate"
)

// guarded is a host that guards the account of the space mine, with a pod, a
// policy and a service account that were synced.
type guarded struct {
	admin, account client.Client
	space          translate.Space
	pod            *corev1.Pod
}

// gate is the condition by which the host's pod has a readiness gate of the tenant's.
const gate = translate.GatePrefix + "tenants-own"

func startGuarded(t *testing.T) *guarded {
	t.Helper()
	config, ctx := startCluster(t), t.Context()
	g := &guarded{admin: clientOf(t, config), space: translate.Space{Name: "mine"}}
	older := &admissionv1.ValidatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingAdmissionPolicy"},
		ObjectMeta: metav1.ObjectMeta{Name: "berth-space-accounts"}, Spec: tenancy.AccountPolicy(),
	}
	older.Spec.MatchConstraints.ResourceRules = append(older.Spec.MatchConstraints.ResourceRules, tenancy.PodPolicy().MatchConstraints.ResourceRules...)
	older.Spec.Variables = []admissionv1.Variable{{Name: "nothing", Expression: "false"}}
	older.Spec.Validations = []admissionv1.Validation{{Expression: "variables.nothing", Message: "an older Berth's policy was not replaced"}}
	//nolint:staticcheck // as Guard does
	if err := g.admin.Patch(ctx, older, client.Apply, client.FieldOwner("berth-tenancy")); err != nil {
		t.Fatal(err)
	}
	for range 2 { // it is repeatable
		if err := tenancy.Guard(ctx, g.admin, kinds.Switches{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"mine", "theirs"} {
		if err := tenancy.Build(ctx, g.admin, translate.Space{Name: name}, nil); err != nil {
			t.Fatal(err)
		}
	}
	posing := rest.CopyConfig(config)
	posing.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:berth-mine:" + syncer.ServiceAccount,
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:berth-mine", "system:authenticated"},
	}
	g.account = clientOf(t, posing)
	// The authorizer learns of roles, and admission of policies, from a watch.
	var last error
	for policy, probe := range map[string]client.Object{"berth-space-accounts": configMap("berth-mine", "probe", "mine"), "berth-space-pods": hostPod("probe")} {
		err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
			last = g.account.Create(ctx, probe, client.DryRunAll)
			return apierrors.IsForbidden(last) && strings.Contains(last.Error(), "ValidatingAdmissionPolicy '"+policy+"' with binding '"+policy+"' denied request: a space's account"), nil
		})
		if err != nil {
			t.Fatalf("the host does not guard by %s: %v", policy, last)
		}
	}
	g.pod = hostPod("mine--default--web")
	g.pod.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: gate}}
	for _, o := range []client.Object{
		g.pod, policy("mine--default--web", translate.Everyone()...),
		&corev1.ServiceAccount{ObjectMeta: meta("berth-mine", "mine--default--runner", "mine")}, configMap("berth-mine", "mine--default--settings", "mine"),
	} {
		if err := retry.OnError(retry.DefaultBackoff, apierrors.IsConflict, func() error { return g.account.Create(ctx, o) }); err != nil {
			t.Fatalf("what syncers make is refused: %v", err)
		}
	}
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		err := g.admin.Get(ctx, client.ObjectKeyFromObject(g.pod), g.pod)
		return g.pod.Status.Phase == corev1.PodRunning && g.pod.Status.PodIP != "", err
	})
	if err != nil {
		t.Fatal("the pod does not run")
	}
	return g
}

func meta(namespace, name, space string) metav1.ObjectMeta {
	o := metav1.ObjectMeta{Namespace: namespace, Name: name}
	if space != "" {
		o.Labels = map[string]string{translate.LabelSpace: space}
	}
	return o
}

func configMap(namespace, name, space string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: meta(namespace, name, space)}
}

func hostPod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: meta("berth-mine", name, "mine"), Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "i"}}}}
}

// policy lets its peers in and out.
func policy(name string, peers ...networkingv1.NetworkPolicyPeer) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{ObjectMeta: meta("berth-mine", name, "mine"), Spec: networkingv1.NetworkPolicySpec{
		PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress},
		Ingress:     []networkingv1.NetworkPolicyIngressRule{{From: peers}},
		Egress:      []networkingv1.NetworkPolicyEgressRule{{To: peers}},
	}}
}

func block(cidr string, except ...string) networkingv1.NetworkPolicyPeer {
	return networkingv1.NetworkPolicyPeer{IPBlock: &networkingv1.IPBlock{CIDR: cidr, Except: except}}
}

// T2, M4, Q3: a space's account in the wrong hands opens no wall, claims no
// address, takes no identity and touches nothing that is not the space's.
func TestTheHostGuardsWhatASpacesAccountWrites(t *testing.T) {
	g := startGuarded(t)
	existing := func(o client.Object, change func()) func(context.Context) error {
		return func(ctx context.Context) error {
			if err := g.admin.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
				return fmt.Errorf("the test: %w", err)
			}
			change()
			return g.account.Update(ctx, o, client.DryRunAll)
		}
	}
	created := func(o client.Object) func(context.Context) error {
		return func(ctx context.Context) error { return g.account.Create(ctx, o, client.DryRunAll) }
	}
	deleted := func(o client.Object) func(context.Context) error {
		return func(ctx context.Context) error { return g.account.Delete(ctx, o, client.DryRunAll) }
	}
	opening := func(peers ...networkingv1.NetworkPolicyPeer) func(context.Context) error {
		return created(policy("mine--default--open", peers...))
	}
	podWith := func(change func(*corev1.Pod)) func(context.Context) error {
		pod := hostPod("mine--default--other")
		change(pod)
		return created(pod)
	}
	service := func(spec corev1.ServiceSpec) func(context.Context) error {
		spec.Ports = []corev1.ServicePort{{Port: 80}}
		return created(&corev1.Service{ObjectMeta: meta("berth-mine", "mine--default--web", "mine"), Spec: spec})
	}
	patched := func(how types.PatchType, status string) func(context.Context) error {
		return func(ctx context.Context) error {
			return g.account.Status().Patch(ctx, g.pod.DeepCopy(), client.RawPatch(how, []byte(`{"status":`+status+`}`)), client.DryRunAll)
		}
	}
	status := func(s string) func(context.Context) error { return patched(types.MergePatchType, s) }
	condition := func(c string) func(context.Context) error {
		return patched(types.StrategicMergePatchType, `{"conditions":[`+c+`]}`)
	}
	wall := policy("berth")
	runner := &corev1.ServiceAccount{ObjectMeta: meta("berth-mine", "mine--default--runner", "mine")}
	settings := configMap("berth-mine", "mine--default--settings", "mine")
	everywhere := &metav1.LabelSelector{}
	const whose, closed, conditions, gates = "only what is made for the space's objects", "its own pods and public addresses", "only conditions in the status", "readiness gates that are Berth's"
	const identity, node, outside = "no annotation but Berth's", "neither their node nor", "may not claim addresses"
	for name, attack := range map[string]struct {
		try  func(context.Context) error
		says string
	}{
		"remove a wall":                     {deleted(wall), whose},
		"open a wall":                       {existing(wall, func() { wall.Spec = policy("", translate.Everyone()...).Spec }), whose},
		"remove the wall's other half":      {deleted(policy("berth-egress")), whose},
		"a policy that looks like a wall":   {created(policy("berth-open", translate.Everyone()...)), whose},
		"a policy for everyone":             {opening(), closed},
		"a policy for other spaces":         {opening(networkingv1.NetworkPolicyPeer{NamespaceSelector: everywhere}), closed},
		"a policy for pods of other spaces": {opening(networkingv1.NetworkPolicyPeer{NamespaceSelector: everywhere, PodSelector: everywhere}), closed},
		"a policy with one such peer":       {opening(append(translate.Everyone(), networkingv1.NetworkPolicyPeer{NamespaceSelector: everywhere})...), closed},
		"a policy for all addresses":        {opening(block("0.0.0.0/0")), closed},
		"a policy for half of the private":  {opening(block("0.0.0.0/0", "10.0.0.0/9", "100.64.0.0/10", "169.254.0.0/16", "172.16.0.0/12", "192.168.0.0/16")), closed},
		"a policy for the metadata service": {opening(block("169.254.169.254/32")), closed},
		"a policy for a private network":    {opening(block("10.1.0.0/16")), closed},
		"a policy around a private network": {opening(block("8.0.0.0/6", "8.8.8.8/32")), closed},
		"a policy for all of IPv6":          {opening(block("::/0", "fe80::/10")), closed},
		"a private address in IPv6":         {opening(block("::ffff:10.0.0.0/104")), ""},
		"an address in another spelling":    {opening(block("010.0.0.0/8")), ""},
		"an existing policy that opens": {func(ctx context.Context) error {
			p := policy("mine--default--web")
			return existing(p, func() { p.Spec.Egress = []networkingv1.NetworkPolicyEgressRule{{}} })(ctx)
		}, closed},

		"another's address":           {status(`{"podIP":"10.244.9.9","podIPs":[{"ip":"10.244.9.9"}]}`), conditions},
		"another's address as well":   {status(`{"podIPs":[{"ip":"` + g.pod.Status.PodIP + `"},{"ip":"fd00::9"}]}`), conditions},
		"a phase":                     {status(`{"phase":"Succeeded"}`), conditions},
		"an image":                    {status(`{"containerStatuses":[{"name":"c","image":"i","imageID":"x","ready":true,"restartCount":0}]}`), conditions},
		"no address":                  {status(`{"podIP":null,"podIPs":null}`), conditions},
		"the pod's readiness":         {condition(`{"type":"Ready","status":"False"}`), gates},
		"no such condition":           {condition(`{"type":"PodScheduled","$patch":"delete"}`), gates},
		"a gate that the pod has not": {condition(`{"type":"` + translate.GatePrefix + `none","status":"True"}`), gates},

		"become nobody":               {deleted(&corev1.ServiceAccount{ObjectMeta: meta("berth-mine", "default", "mine")}), whose},
		"become undying":              {deleted(&corev1.ServiceAccount{ObjectMeta: meta("berth-mine", syncer.ServiceAccount, "mine")}), whose},
		"an account like Berth's":     {created(&corev1.ServiceAccount{ObjectMeta: meta("berth-mine", "berth-other", "mine")}), whose},
		"a cloud's identity":          {existing(runner, func() { runner.Annotations = map[string]string{"eks.amazonaws.com/role-arn": "admin"} }), identity},
		"run as Berth":                {podWith(func(p *corev1.Pod) { p.Spec.ServiceAccountName = syncer.ServiceAccount }), node},
		"a node":                      {podWith(func(p *corev1.Pod) { p.Spec.NodeName = "host-node-1" }), node},
		"put everybody out":           {podWith(func(p *corev1.Pod) { p.Spec.PriorityClassName = "system-node-critical" }), node},
		"a token of Berth's":          {created(tokenSecret(syncer.ServiceAccount)), "no token of a host's service account"},
		"others' addresses":           {service(corev1.ServiceSpec{ExternalIPs: []string{"192.0.2.1"}}), outside},
		"a door to others' endpoints": {service(corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort}), outside},

		"a pod without an owner":        {created(&corev1.Pod{ObjectMeta: meta("berth-mine", "mine--default--x", ""), Spec: g.pod.Spec}), whose},
		"a pod like the host's":         {created(hostPod("coredns")), whose},
		"give up a pod":                 {existing(g.pod, func() { g.pod.Labels = nil }), whose},
		"an object without an owner":    {created(configMap("berth-mine", "mine--default--x", "")), whose},
		"an object of another space's":  {created(configMap("berth-mine", "theirs--default--x", "theirs")), whose},
		"what the host has there":       {deleted(configMap("berth-mine", "kube-root-ca.crt", "")), whose},
		"give up what it made":          {existing(settings, func() { settings.Labels = nil }), whose},
		"the nameserver as a config":    {created(configMap("berth-mine", translate.DNSServiceName, "mine")), whose},
		"another space's, by RBAC":      {deleted(configMap("berth-theirs", "theirs--default--x", "theirs")), `cannot delete resource "configmaps"`},
		"another space's wall, by RBAC": {deleted(&networkingv1.NetworkPolicy{ObjectMeta: meta("berth-theirs", "berth", "theirs")}), `cannot delete resource "networkpolicies"`},
	} {
		t.Run(name, func(t *testing.T) {
			if err := attack.try(t.Context()); !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), attack.says) {
				t.Errorf("got %v, want it refused with %q", err, attack.says)
			}
		})
	}
}

func tokenSecret(account string) *corev1.Secret {
	secret := &corev1.Secret{ObjectMeta: meta("berth-mine", "mine--default--token", "mine"), Type: corev1.SecretTypeServiceAccountToken}
	secret.Annotations = map[string]string{corev1.ServiceAccountNameKey: account}
	return secret
}

// M4: a host converts an object anew for each policy that it meets, and one that
// meets none is not guarded.
func TestEachResourceThatAccountsWriteMeetsOnePolicy(t *testing.T) {
	met := map[string]int{}
	for _, policy := range []admissionv1.ValidatingAdmissionPolicySpec{tenancy.PodPolicy(), tenancy.AccountPolicy()} {
		for _, rule := range policy.MatchConstraints.ResourceRules {
			for _, resource := range rule.Resources {
				met[rule.APIGroups[0]+"/"+resource]++
			}
		}
	}
	switches, err := kinds.Parse([]string{"volumesnapshots=on"})
	if err != nil {
		t.Fatal(err)
	}
	for _, right := range append(tenancy.AccountRules(), tenancy.MoreRules(switches)...) {
		if !slices.ContainsFunc(right.Verbs, func(v string) bool { return v == "update" || v == "patch" || v == "delete" }) {
			continue
		}
		for _, resource := range right.Resources {
			if n := met[right.APIGroups[0]+"/"+resource]; n != 1 {
				t.Errorf("%s meets %d policies", resource, n)
			}
		}
	}
	for _, rule := range tenancy.PodPolicy().Validations {
		if strings.Contains(rule.Expression, "request.resource") {
			t.Errorf("pods meet what is about others: %s", rule.Expression)
		}
	}
}

// S1: what is translated from whatever a tenant asks for, and what Berth makes
// for itself, passes.
func TestTheGuardLetsSyncersWork(t *testing.T) {
	g, ctx := startGuarded(t), t.Context()
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
		// A conflict is over the quota, which is counted meanwhile.
		if err := retry.OnError(retry.DefaultBackoff, apierrors.IsConflict, func() error { return g.account.Create(ctx, host) }); err != nil {
			t.Errorf("a policy for %s: %v", name, err)
		}
		host.Annotations["changed"] = "yes"
		if err := g.account.Update(ctx, host); err != nil {
			t.Errorf("a change of a policy for %s: %v", name, err)
		}
		if err := g.account.Delete(ctx, host); err != nil {
			t.Errorf("the end of a policy for %s: %v", name, err)
		}
	}
	if err := g.account.Create(ctx, space.DNSService()); err != nil {
		t.Errorf("the nameserver: %v", err)
	}
	for _, slice := range space.PodsEndpoints() {
		if err := retry.OnError(retry.DefaultBackoff, apierrors.IsConflict, func() error { return g.account.Create(ctx, slice) }); err != nil {
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
	// What an admin gives a service account stays, and does not stop the syncer.
	runner := &corev1.ServiceAccount{ObjectMeta: meta("berth-mine", "mine--default--runner", "mine")}
	runner.Annotations = map[string]string{"eks.amazonaws.com/role-arn": "shop"}
	if err := g.admin.Update(ctx, runner); err != nil {
		t.Fatal(err)
	}
	runner.Labels["changed"] = "yes"
	if err := g.account.Update(ctx, runner); err != nil {
		t.Errorf("a service account that an admin gave an identity: %v", err)
	}
	// It is not about others.
	if err := g.admin.Update(ctx, policy("berth", networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{}})); err != nil {
		t.Errorf("the platform's admin: %v", err)
	}
}

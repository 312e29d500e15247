// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/testhost"
)

func newTenant(name, parent string, ancestors ...string) *v1alpha1.Tenant {
	t := &v1alpha1.Tenant{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"test": "cli"}},
		Spec:       v1alpha1.TenantSpec{Parent: parent},
		Status: v1alpha1.TenantStatus{
			State: v1alpha1.TenantActive, Size: ptr.To[int32](1), Summary: v1alpha1.TenantSummary{Spaces: "1/1", CPU: "500m/8"},
			Usage: v1alpha1.TenantUsage{
				Hard: map[corev1.ResourceName]resource.Quantity{"limits.cpu": resource.MustParse("8")}, Used: map[corev1.ResourceName]resource.Quantity{"limits.cpu": resource.MustParse("4")},
			},
			Subtree: v1alpha1.SubtreeUsage{Used: map[corev1.ResourceName]resource.Quantity{"limits.cpu": resource.MustParse("4")}},
		},
	}
	for i, ancestor := range ancestors { // nearest first
		t.Labels[v1alpha1.LabelTreePrefix+ancestor] = fmt.Sprint(i + 1)
	}
	return t
}

// report sets the condition Ready of an object, as the operator or the platform does.
func (h *testHost) report(ctx context.Context, object client.Object, status metav1.ConditionStatus, reason, message string) error {
	if err := h.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
		return err
	}
	condition := metav1.Condition{Type: v1alpha1.ConditionReady, Status: status, Reason: reason, Message: message, ObservedGeneration: object.GetGeneration()}
	switch o := object.(type) {
	case *v1alpha1.Tenant:
		meta.SetStatusCondition(&o.Status.Conditions, condition)
	case *v1alpha1.Space:
		meta.SetStatusCondition(&o.Status.Conditions, condition)
	}
	return h.Status().Update(ctx, object)
}

// T1, H1, O1: the flags of create are the fields of the tenant, and what a dry run prints is what is created.
func TestTenantIsCreatedAsTheFlagsSay(t *testing.T) {
	h := use(t)
	flags := []string{
		"tenant", "create", "made", "--parent", "above", "--private", "--owner", "User:alice", "--owner", "group:oidc:org:devs", "--owner", "ServiceAccount:ci:robot", "--owner", "hostserviceaccount:ci:robot",
		"--namespace-quota", "10", "--cpu", "8", "--memory", "16Gi", "--pods", "100", "--storage", "1Ti", "--quota", "count/jobs.batch=5", "--quota", "secrets=0",
		"--node-selector", "pool=acme,disk=ssd", "--node-selector", "rack=7", "--toleration", "tenant=acme:NoSchedule", "--toleration", "gpu:NoExecute",
	}
	var printed v1alpha1.Tenant
	if err := yaml.UnmarshalStrict([]byte(must(t, append(flags, "--dry-run=client", "-o", "yaml")...)), &printed); err != nil {
		t.Fatal(err)
	}
	want := v1alpha1.TenantSpec{
		Parent: "above", Private: ptr.To(true), Namespaces: v1alpha1.Namespaces{Quota: ptr.To[int32](10)},
		Owners: []v1alpha1.Owner{
			{Kind: v1alpha1.UserKind, Name: "alice"}, {Kind: v1alpha1.GroupKind, Name: "oidc:org:devs"}, {Kind: v1alpha1.ServiceAccountKind, Name: "system:serviceaccount:ci:robot"},
			{Kind: v1alpha1.HostServiceAccountKind, Name: "system:serviceaccount:ci:robot"},
		},
		Quota: map[corev1.ResourceName]resource.Quantity{
			"requests.cpu": resource.MustParse("8"), "limits.cpu": resource.MustParse("8"), "requests.memory": resource.MustParse("16Gi"), "limits.memory": resource.MustParse("16Gi"),
			"pods": resource.MustParse("100"), "requests.storage": resource.MustParse("1Ti"), "count/jobs.batch": resource.MustParse("5"), "secrets": resource.MustParse("0"),
		},
		Nodes: v1alpha1.Nodes{Selector: map[string]string{"pool": "acme", "disk": "ssd", "rack": "7"}, Tolerations: []v1alpha1.Toleration{
			{Key: "tenant", Operator: corev1.TolerationOpEqual, Value: "acme", Effect: corev1.TaintEffectNoSchedule}, {Key: "gpu", Operator: corev1.TolerationOpEqual, Effect: corev1.TaintEffectNoExecute},
		}},
	}
	if diff := cmp.Diff(want, printed.Spec); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if printed.Kind != "Tenant" || printed.APIVersion != "berth.dev/v1alpha1" {
		t.Errorf("no manifest: %+v", printed.TypeMeta)
	}
	if got := must(t, append(flags, "--dry-run=server")...); got != "tenant.berth.dev/made created (server dry run)\n" {
		t.Errorf("printed %q", got)
	}
	made := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "made"}}
	if err := h.Get(t.Context(), client.ObjectKeyFromObject(made), made); err == nil {
		t.Fatal("a dry run has created it")
	}
	h.forget(t, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "made"}})
	if got := must(t, flags...); got != "tenant.berth.dev/made created\n" {
		t.Errorf("printed %q", got)
	}
	if err := h.Get(t.Context(), client.ObjectKeyFromObject(made), made); err != nil || made.Spec.Parent != "above" || len(made.Spec.Owners) != 4 || made.ManagedFields[0].Manager != "berth-cli" {
		t.Errorf("created is %+v (%v)", made, err)
	}
	if _, _, err := berth(t, flags...); err == nil || !strings.Contains(err.Error(), `"made" already exists`) {
		t.Errorf("created twice: %v", err)
	}
}

func TestFlagsOfTenantsThatMeanNothingAreRefused(t *testing.T) {
	use(t)
	for says, args := range map[string][]string{
		"--owner=alice: must be User:NAME":                          {"--owner", "alice"},
		"--owner=Robot:x: must be User:NAME":                        {"--owner", "Robot:x"},
		"--cpu=many: must be a quantity":                            {"--cpu", "many"},
		"--toleration=tenant=acme: must be KEY=VALUE:EFFECT":        {"--toleration", "tenant=acme"},
		"--memory=-1: must be a quantity":                           {"--memory", "-1"},
		"--pods=: must be a quantity":                               {"--pods", ""},
		"--quota=pods: must be RESOURCE=AMOUNT, such as":            {"--quota", "pods"},
		"--quota==1: must be RESOURCE=AMOUNT, such as":              {"--quota", "=1"},
		"--quota=pods=x: must be a quantity":                        {"--quota", "pods=x"},
		"--quota=limits.cpu=1: --cpu=8 sets limits.cpu, too; leave": {"--cpu", "8", "--quota", "limits.cpu=1"},
		"--dry-run=maybe: must be none, client, or server":          {"--dry-run", "maybe"},
		"spec.owners[0]":        {"--owner", "ServiceAccount:robot"},
		"spec.namespaces.quota": {"--namespace-quota", "-1"},
		"unable to match a printer suitable for the output format":  {"-o", "xml", "--dry-run=client"},
		"may have at most 57 characters":                            {"--dry-run=server", strings.Repeat("n", 58)},
		"--kubeconfig: stat /no/such/file":                          {"--kubeconfig", "/no/such/file"},
		`context "nowhere" does not exist`:                          {"--context", "nowhere"},
		"--host-kubeconfig=b: --kubeconfig=a is another file; set ": {"--kubeconfig", "a", "--host-kubeconfig", "b"},
	} {
		args = append([]string{"tenant", "create"}, args...)
		if !strings.Contains(says, "characters") {
			args = append(args, "wrong")
		}
		if out, _, err := berth(t, args...); err == nil || !strings.Contains(err.Error(), says) || out != "" {
			t.Errorf("%q: got %v and %q, want %q", args, err, out, says)
		}
	}
}

// Q5: a quota beyond that of the parent is refused before anything is created, with both limits.
func TestAQuotaBeyondThatOfTheParentIsRefused(t *testing.T) {
	h := use(t)
	h.make(t, newTenant("limited", "")) // to limits.cpu=8
	_, _, err := berth(t, "tenant", "create", "beyond", "--parent", "limited", "--cpu", "9", "--dry-run=server")
	const want = "--parent=limited: the quota of a tenant can't be more than that of the tenant above: limits.cpu of 9 is more than its 8; lower the quota, or raise spec.quota of tenant limited first"
	if err == nil || err.Error() != want {
		t.Errorf("got %v", err)
	}
	for _, args := range [][]string{{"--parent", "limited", "--cpu", "8"}, {"--parent", "missing", "--cpu", "9"}, {"--parent", "limited", "--pods", "9"}} {
		if out := must(t, append([]string{"tenant", "create", "within", "--dry-run=server"}, args...)...); !strings.Contains(out, "within created") {
			t.Errorf("%q: %s", args, out)
		}
	}
}

// T7: --wait returns when the tenant is ready, with progress, or says why it isn't.
func TestCreateWaitsForTheTenant(t *testing.T) {
	h := use(t)
	type result struct {
		out, progress string
		err           error
	}
	create := func(name string, args ...string) chan result {
		h.forget(t, &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name}})
		ended := make(chan result, 1)
		go func() {
			out, progress, err := berth(t, append([]string{"tenant", "create", name, "--wait"}, args...)...)
			ended <- result{out, progress, err}
		}()
		return ended
	}
	eventually := func(name string, status metav1.ConditionStatus, reason, message string) {
		tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name}}
		testhost.Eventually(t, "report on "+name, func(ctx context.Context) error { return h.report(ctx, tenant, status, reason, message) })
	}

	ended := create("waited")
	eventually("waited", metav1.ConditionFalse, v1alpha1.ReasonSpacesNotReady, "the space waited starts")
	testhost.Eventually(t, "see the tenant become ready", func(ctx context.Context) error {
		select {
		case r := <-ended:
			if r.err != nil || r.out != "tenant.berth.dev/waited created\n" || !strings.Contains(r.progress, "tenant.berth.dev/waited: waiting for") {
				t.Fatalf("got %+v", r)
			}
			return nil
		default:
			waited := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: "waited"}}
			return errors.Join(errors.New("it waits"), h.report(ctx, waited, metav1.ConditionTrue, v1alpha1.ReasonActive, ""))
		}
	})

	ended = create("taken")
	eventually("taken", metav1.ConditionFalse, v1alpha1.ReasonNameTaken, "set spec.tenantName of the space taken")
	if r := <-ended; r.err == nil || !strings.Contains(r.err.Error(), "tenant.berth.dev/taken doesn't become ready: NameTaken: set spec.tenantName") {
		t.Errorf("got %+v", r)
	}

	r := <-create("ignored", "--timeout", "300ms")
	if r.err == nil || !strings.Contains(r.err.Error(), "not done after 300ms") || !strings.Contains(r.err.Error(), "waiting for the operator") || r.out != "" {
		t.Errorf("got %+v", r)
	}
}

// T7, H2: tenants are listed as kubectl lists them, in all formats.
func TestTenantsAreListed(t *testing.T) {
	h := use(t)
	h.make(t, newTenant("acme", ""))
	h.make(t, newTenant("acme-dev", "acme", "acme"))
	if out := must(t, "tenant", "get", "-l", "test=cli"); !strings.HasPrefix(out, "NAME") || !strings.Contains(out, "STATE") || !strings.Contains(out, "NAMESPACE QUOTA") ||
		strings.Contains(out, "CPU") || strings.Count(out, "\n") != 3 || !regexp.MustCompile(`(?m)^acme-dev +Active +1/1 .* acme +`).MatchString(out) {
		t.Errorf("printed:\n%s", out)
	}
	for _, tc := range []struct {
		reason string
		args   []string
		want   string // a regular expression
	}{
		{"wide tables have all columns", []string{"acme", "-o", "wide"}, `PRIVATE +CPU(.|\n)*500m/8`},
		{"a table has no headers if asked", []string{"acme", "--no-headers"}, `^acme +Active .*\n$`},
		{"table is a format", []string{"acme", "-o", "table"}, `^NAME +STATE`},
		{"names", []string{"-o", "name", "-l", "test=cli"}, `^tenant.berth.dev/acme\ntenant.berth.dev/acme-dev\n$`},
		{"what is below", []string{"-o", "name", "-l", "tree.berth.dev/acme"}, `^tenant.berth.dev/acme-dev\n$`},
		{"one is an object", []string{"acme", "-o", "yaml"}, `^apiVersion: berth.dev/v1alpha1\nkind: Tenant\n`},
		{"several are a list", []string{"acme", "acme-dev", "-o", "json"}, `"kind": "List"`},
		{"fields of one", []string{"acme", "-o", "jsonpath={.status.state}"}, `^Active$`},
		{"fields of a list", []string{"-l", "test=cli", "-o", "jsonpath={.items[*].metadata.name}"}, `^acme acme-dev$`},
		{"none", []string{"-l", "test=none"}, `^$`},
	} {
		if out := must(t, append([]string{"tenant", "get"}, tc.args...)...); !regexp.MustCompile(tc.want).MatchString(out) {
			t.Errorf("%s: %q printed:\n%s", tc.reason, tc.args, out)
		}
	}
	out, _, err := berth(t, "tenant", "get", "acme", "missing")
	if err == nil || !strings.Contains(err.Error(), `tenants.berth.dev "missing" not found`) || !strings.Contains(out, "acme ") {
		t.Errorf("one is missing: %v\n%s", err, out)
	}
	if _, hints, err := berth(t, "tenant", "get", "-l", "test=none"); err != nil || hints != "No resources found\n" {
		t.Errorf("none: %q (%v)", hints, err)
	}
}

// H1: the tree is drawn, from any tenant down, and in ASCII where the terminal has nothing else.
func TestTheTreeIsDrawnFromTheHost(t *testing.T) {
	h := use(t)
	h.make(t, newTenant("root", ""))
	private := newTenant("root-a", "root", "root")
	private.Spec.Private = ptr.To(true)
	h.make(t, private)
	h.make(t, newTenant("root-a-b", "root-a", "root-a", "root"))
	h.make(t, newTenant("unrelated", ""))
	want := `TENANT                 STATE    SPACES   NAMESPACES   CPU              MEMORY
root                   Active   1/1      1            █████░░░░░ 4/8   -
└── root-a (private)   Active   1/1      1            █████░░░░░ 4/8   -
    └── root-a-b       Active   1/1      1            █████░░░░░ 4/8   -
`
	if diff := cmp.Diff(want, must(t, "tenant", "tree", "root")); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if out := must(t, "tenant", "tree"); !strings.Contains(out, "\nunrelated ") || !strings.Contains(out, "\n    └── root-a-b ") {
		t.Errorf("printed:\n%s", out)
	}
	for format, want := range map[string]string{
		"name": `^tenant.berth.dev/root\ntenant.berth.dev/root-a\ntenant.berth.dev/root-a-b\n$`, "json": `"kind": "List"(.|\n)*"name": "root-a"`, "wide": `MEMORY   PODS   STORAGE\n`,
	} {
		if out := must(t, "tenant", "tree", "root", "-o", format); !regexp.MustCompile(want).MatchString(out) {
			t.Errorf("-o %s printed:\n%s", format, out)
		}
	}
	t.Setenv("LC_ALL", "C")
	if out := must(t, "tenant", "tree", "root-a"); !strings.Contains(out, "`-- root-a-b") || !strings.Contains(out, "#####----- 4/8") || strings.Contains(out, "root ") {
		t.Errorf("printed:\n%s", out)
	}
	if _, _, err := berth(t, "tenant", "tree", "missing"); err == nil || !strings.Contains(err.Error(), `"missing" not found`) {
		t.Errorf("got %v", err)
	}
}

// O8: tenants are cordoned and uncordoned, as often as one likes.
func TestTenantsAreCordoned(t *testing.T) {
	h := use(t)
	tenant := newTenant("fenced", "")
	h.make(t, tenant)
	for _, step := range []struct {
		args     []string
		out      string
		cordoned bool
	}{
		{[]string{"cordon", "fenced", "--dry-run=client"}, "cordoned (dry run)", false},
		{[]string{"cordon", "fenced", "--dry-run=server"}, "cordoned (server dry run)", false},
		{[]string{"cordon", "fenced"}, "cordoned", true},
		{[]string{"cordon", "fenced"}, "already cordoned", true},
		{[]string{"uncordon", "fenced"}, "uncordoned", false},
		{[]string{"uncordon", "fenced"}, "already uncordoned", false},
	} {
		if got := must(t, append([]string{"tenant"}, step.args...)...); got != "tenant.berth.dev/fenced "+step.out+"\n" {
			t.Errorf("%q: printed %q", step.args, got)
		}
		if err := h.Get(t.Context(), client.ObjectKeyFromObject(tenant), tenant); err != nil || ptr.Deref(tenant.Spec.Cordoned, false) != step.cordoned {
			t.Errorf("%q: the tenant is cordoned: %v (%v)", step.args, ptr.Deref(tenant.Spec.Cordoned, false), err)
		}
	}
}

// H7, T6: a tenant with others below is deleted only if that is asked for, and the deletion is followed to its end.
func TestASubtreeIsDeletedOnlyIfAskedFor(t *testing.T) {
	h := use(t)
	above := newTenant("tall", "")
	above.Status.Children = ptr.To[int32](1)
	h.make(t, above, v1alpha1.TenantFinalizer)
	h.make(t, newTenant("tall-a", "tall", "tall"))

	_, _, err := berth(t, "tenant", "delete", "tall")
	if err == nil || err.Error() != "tenant.berth.dev/tall has tenants below it: tall-a; to delete them as well, use --subtree" {
		t.Errorf("got %v", err)
	}
	for _, mode := range []string{"client", "server"} {
		suffix := map[string]string{"client": " (dry run)\n", "server": " (server dry run)\n"}[mode]
		want := "tenant.berth.dev/tall-a deleted" + suffix + "tenant.berth.dev/tall deleted" + suffix
		if out := must(t, "tenant", "delete", "tall", "--subtree", "--dry-run="+mode); out != want {
			t.Errorf("printed %q", out)
		}
	}
	if err := h.Get(t.Context(), client.ObjectKeyFromObject(above), above); err != nil || above.DeletionTimestamp != nil || above.Spec.DeletionPropagation != v1alpha1.RefuseDeletion {
		t.Fatalf("a refusal or a dry run has changed %+v (%v)", above, err)
	}
	if out, _, err := berth(t, "tenant", "delete", "tall", "--subtree", "--timeout=300ms"); err == nil || !strings.Contains(err.Error(), "not done after 300ms; the deletion continues") || out != "" {
		t.Errorf("got %v and %q", err, out)
	}
	if err := h.Get(t.Context(), client.ObjectKeyFromObject(above), above); err != nil || above.DeletionTimestamp == nil || above.Spec.DeletionPropagation != v1alpha1.DeleteSubtree {
		t.Fatalf("it isn't being deleted: %+v (%v)", above, err)
	}
	if err := h.report(t.Context(), above, metav1.ConditionFalse, v1alpha1.ReasonDeleting, "deleting tenant tall-a"); err != nil {
		t.Fatal(err)
	}
	out, progress, ended := begin(t.Context(), "tenant", "delete", "tall")
	testhost.Eventually(t, "print what is waited for", func(context.Context) error {
		if progress.String() != "tenant.berth.dev/tall: deleting tenant tall-a\n" {
			return fmt.Errorf("printed %q", progress.String())
		}
		return nil
	})
	testhost.Eventually(t, "end the deletion", func(ctx context.Context) error {
		if err := h.Get(ctx, client.ObjectKeyFromObject(above), above); err != nil {
			return err
		}
		above.Finalizers = nil
		return h.Update(ctx, above)
	})
	if err := <-ended; err != nil || out.String() != "tenant.berth.dev/tall deleted\n" {
		t.Errorf("got %q (%v)", out.String(), err)
	}
	// What is wrong with one tenant doesn't keep the others.
	if out, _, err := berth(t, "tenant", "delete", "nobody", "tall-a", "--wait=false"); err == nil || !strings.Contains(err.Error(), "nobody") || out != "tenant.berth.dev/tall-a is being deleted\n" {
		t.Errorf("printed %q (%v)", out, err)
	}
}

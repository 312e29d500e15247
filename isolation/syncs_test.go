// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/syncer/declaration"
	"github.com/berth-dev/berth/translate"
)

const (
	ticketDefinition = `
metadata: {name: tickets.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {plural: tickets, singular: ticket, kind: Ticket, listKind: TicketList}
  versions:
  - name: v1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, properties: {spec: {type: object, properties: {
      host: {type: string}, account: {type: string}, secretName: {type: string}, retries: {type: integer, default: 3}, options: {type: object, default: {}, properties: {mode: {type: string, default: Fast}}}}}}}}
`
	ticketSync = `
direction: ToHost
version: v1
fields: [{path: spec.host, rule: self.endsWith('.example.com')}, {path: spec.secretName, type: ReturnedSecret}]
`
)

func tickets(t *testing.T) (*declaration.Declaration, *apiextensionsv1.CustomResourceDefinition) {
	t.Helper()
	crd, of := &apiextensionsv1.CustomResourceDefinition{}, &v1alpha1.ResourceSync{ObjectMeta: metav1.ObjectMeta{Name: "tickets.example.com"}}
	for text, into := range map[string]any{ticketDefinition: crd, ticketSync: &of.Spec} {
		if err := yaml.UnmarshalStrict([]byte(text), into); err != nil {
			t.Fatal(err)
		}
	}
	d, errs := declaration.Compile(of, crd)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	return d, crd
}

func ticket(t *testing.T, d *declaration.Declaration, name, host string) *unstructured.Unstructured {
	t.Helper()
	v := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"namespace": "default", "name": name, "uid": "u"}, "spec": map[string]any{"host": host, "secretName": "s"},
	}}
	out, errs := d.ToHost(t.Context(), mine, v, nil)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	return out
}

// M4: with the rights and the policy of a ResourceSync, the account of a space writes copies of the space's objects, and nothing else. The host
// sets defaults in them.
func TestTheHostRestrictsWhatAccountsWriteOfResourceSyncs(t *testing.T) {
	config, ctx := startCluster(t), t.Context()
	known := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(known), apiextensionsv1.AddToScheme(known)); err != nil {
		t.Fatal(err)
	}
	admin, err := client.New(config, client.Options{Scheme: known})
	if err != nil {
		t.Fatal(err)
	}
	d, crd := tickets(t)
	if err := admin.Create(ctx, crd.DeepCopy()); err != nil {
		t.Fatal(err)
	}
	if err := isolation.CheckSync(ctx, admin, d); err == nil || !strings.Contains(err.Error(), "run 'berth sync-policy tickets.example.com | kubectl apply -f -'") {
		t.Errorf("without a policy: %v", err)
	}
	for range 2 { // it is repeatable
		if err := isolation.InstallSync(ctx, admin, d); err != nil {
			t.Fatal(err)
		}
		if err := isolation.CheckSync(ctx, admin, d); err != nil {
			t.Error(err)
		}
	}
	for _, space := range []translate.Space{mine, {Name: "theirs"}} {
		if err := isolation.Apply(ctx, admin, space, nil, isolation.AlsoSyncing(isolation.SyncRule(d))); err != nil {
			t.Fatal(err)
		}
	}
	posing := rest.CopyConfig(config)
	posing.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:berth-mine:" + syncer.ServiceAccount}
	account := clientOf(t, posing)
	// The host serves the definition, authorizes the account, and enforces the policy after some moments.
	refused := ticket(t, d, "probe", "a.example.com")
	refused.SetLabels(nil)
	var last error
	if err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		last = account.Create(ctx, refused.DeepCopy(), client.DryRunAll)
		return apierrors.IsForbidden(last) && strings.Contains(last.Error(), "ValidatingAdmissionPolicy 'berth-sync-tickets.example.com'"), nil
	}); err != nil {
		t.Fatalf("the host does not enforce the policy: %v", last)
	}
	made := ticket(t, d, "one", "a.example.com")
	if err := account.Create(ctx, made); err != nil {
		t.Fatalf("what Berth makes is refused: %v", err)
	}
	if mode, _, _ := unstructured.NestedString(made.Object, "spec", "options", "mode"); mode != "Fast" {
		t.Errorf("the host sets no defaults: %v", made.Object)
	}
	if changed := ticket(t, d, "one", "b.example.com"); !d.Update(changed, made) {
		t.Error("the update changes nothing")
	}
	if err := account.Update(ctx, made); err != nil {
		t.Errorf("an update is refused: %v", err)
	}
	foreign := ticket(t, d, "foreign", "a.example.com")
	foreign.SetName("foreign")
	if err := admin.Create(ctx, foreign); err != nil {
		t.Fatal(err)
	}
	set := func(name string, value any) func(*unstructured.Unstructured) {
		return func(o *unstructured.Unstructured) { _ = unstructured.SetNestedField(o.Object, value, "spec", name) }
	}
	for name, change := range map[string]func(*unstructured.Unstructured){
		"another field": set("account", "admin"), "another value than the default": set("retries", int64(9)), "a value that the rule forbids": set("host", "bank.test"),
		"a Secret of the host's": set("secretName", "ca"), "a finalizer": func(o *unstructured.Unstructured) { o.SetFinalizers([]string{"example.com/f"}) },
		"another namespace": func(o *unstructured.Unstructured) { o.SetNamespace("berth-theirs") }, "a name of its own": func(o *unstructured.Unstructured) { o.SetName("own") },
	} {
		o := ticket(t, d, "two", "a.example.com")
		change(o)
		if err := account.Create(ctx, o, client.DryRunAll); !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := account.Delete(ctx, foreign); !apierrors.IsForbidden(err) {
		t.Errorf("an object of the host's is deleted: %v", err)
	}
	if err := account.Delete(ctx, made); err != nil {
		t.Errorf("an object of the space is not deleted: %v", err)
	}

	policy, binding := &admissionv1.ValidatingAdmissionPolicy{}, &admissionv1.ValidatingAdmissionPolicyBinding{}
	for _, tc := range []struct {
		object client.Object
		change func()
		want   string
	}{
		{policy, func() { policy.Spec.Validations = policy.Spec.Validations[:1] }, "ValidatingAdmissionPolicy berth-sync-tickets.example.com differs in spec"},
		{binding, func() { binding.Spec.ValidationActions = []admissionv1.ValidationAction{admissionv1.Audit} }, "ValidatingAdmissionPolicyBinding berth-sync-tickets.example.com differs in spec"},
	} {
		if err := admin.Get(ctx, client.ObjectKey{Name: "berth-sync-tickets.example.com"}, tc.object); err != nil {
			t.Fatal(err)
		}
		if version := tc.object.GetAnnotations()[isolation.AnnotationDeclaration]; version != d.Version {
			t.Errorf("the declaration's version is %q, want %q", version, d.Version)
		}
		tc.change()
		if err := admin.Update(ctx, tc.object); err != nil {
			t.Fatal(err)
		}
		if err := isolation.CheckSync(ctx, admin, d); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%v, want %q", err, tc.want)
		}
		if err := isolation.InstallSync(ctx, admin, d); err != nil {
			t.Fatal(err)
		}
	}
	if err := admin.Delete(ctx, binding); err != nil {
		t.Fatal(err)
	}
	if err := isolation.CheckSync(ctx, admin, d); err == nil || !strings.Contains(err.Error(), "ValidatingAdmissionPolicyBinding berth-sync-tickets.example.com is missing") {
		t.Errorf("without a binding: %v", err)
	}
}

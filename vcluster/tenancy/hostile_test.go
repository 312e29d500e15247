// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy_test

import (
	"fmt"
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/vcluster/pki"
)

func gvr(group, version, resource string) schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: group, Version: version, Resource: resource}
}

// hostile is a client that RBAC allows everything, by its own groups and by those that it takes on.
func (e *env) hostile() map[string]*rest.Config {
	e.t.Helper()
	plain := e.by(e.clients().Client("mallory", []string{pki.AdminGroup, "system:masters"}))
	posing := rest.CopyConfig(plain)
	posing.Impersonate = rest.ImpersonationConfig{UserName: "system:apiserver", Groups: []string{"system:masters"}}
	controller := rest.CopyConfig(plain)
	controller.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:kube-system:namespace-controller", Groups: []string{"system:masters"}}
	return map[string]*rest.Config{"a cluster admin": plain, "who poses as the API server": posing, "who poses as a controller": controller}
}

// M3, O8: nobody from outside changes or deletes what Berth keeps, by any verb.
func TestHostileKeptObjectsAreNobodysToChange(t *testing.T) {
	state := full()
	state.Published = []access.Published{
		publish(v1alpha1.SameNamespace, configMap("web", "same", "one")), publish("", definition()),
		publish(v1alpha1.SameNamespace, map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"namespace": "web", "name": "w"}, "spec": map[string]any{"size": int64(1)}}),
		publish(v1alpha1.SameNamespace, map[string]any{
			"apiVersion": "apps/v1", "kind": "Deployment", "metadata": map[string]any{"namespace": "web", "name": "d"},
			"spec": map[string]any{
				"replicas": int64(0), "selector": map[string]any{"matchLabels": map[string]any{"a": "b"}},
				"template": map[string]any{"metadata": map[string]any{"labels": map[string]any{"a": "b"}}, "spec": map[string]any{"containers": []any{map[string]any{"name": "c", "image": "c"}}}},
			},
		}),
	}
	e := startEnv(t, state)
	if err := createNamespace(t, e.admin(), "web"); err != nil {
		t.Fatal(err)
	}
	own, err := dynamic.NewForConfig(e.plane.Loopback())
	if err != nil {
		t.Fatal(err)
	}
	kept := []struct {
		resource        schema.GroupVersionResource
		namespace, name string
	}{
		{gvr("", "v1", "limitranges"), "web", "berth-solar-0"}, {gvr("networking.k8s.io", "v1", "networkpolicies"), "web", "berth-solar-0"},
		{gvr("rbac.authorization.k8s.io", "v1", "clusterroles"), "", v1alpha1.NamespaceDeleterRole}, {gvr("", "v1", "configmaps"), "web", "same"},
		{gvr("apiextensions.k8s.io", "v1", "customresourcedefinitions"), "", "widgets.example.com"}, {gvr("example.com", "v1", "widgets"), "web", "w"},
		{gvr("", "v1", "configmaps"), "kube-system", "berth-kept"}, {gvr("apps", "v1", "deployments"), "web", "d"},
	}
	for _, o := range kept {
		eventually(t, func() error {
			_, err := of(own, o.resource, o.namespace).Get(t.Context(), o.name, metav1.GetOptions{})
			return err
		})
	}
	for who, config := range e.hostile() {
		d, err := dynamic.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		for _, o := range kept {
			c := of(d, o.resource, o.namespace)
			before, err := c.Get(t.Context(), o.name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			what := fmt.Sprintf("%s, %s %s", who, o.resource.Resource, o.name)
			for how, patch := range map[string]string{
				"a label": `{"metadata":{"labels":{"x":"y"}}}`, "its labels": `{"metadata":{"labels":null}}`, "an annotation": `{"metadata":{"annotations":{"x":"y"}}}`,
				"a finalizer":        `{"metadata":{"finalizers":["example.com/hold"]}}`,
				"an owner":           `{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"gone","uid":"11111111-1111-1111-1111-111111111111"}]}}`,
				"its label of Berth": `{"metadata":{"labels":{"berth.dev/tenant":null,"berth.dev/publication":null}}}`,
			} {
				_, err := c.Patch(t.Context(), o.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
				if err := forbidden(err, "administrator of the platform"); err != nil {
					t.Errorf("%s: patch %s: %v", what, how, err)
				}
				_, err = c.Patch(t.Context(), o.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}, "status")
				if err == nil {
					after, err := c.Get(t.Context(), o.name, metav1.GetOptions{})
					if err != nil || after.GetLabels()[v1alpha1.LabelPublication] != before.GetLabels()[v1alpha1.LabelPublication] || len(after.GetOwnerReferences()) > 0 || after.GetLabels()["x"] != "" {
						t.Errorf("%s: patch %s by the status: %+v, %v", what, how, after, err)
					}
				}
			}
			changed := before.DeepCopy()
			changed.SetAnnotations(map[string]string{"x": "y"})
			_, err = c.Update(t.Context(), changed, metav1.UpdateOptions{})
			if err := forbidden(err); err != nil {
				t.Errorf("%s: update: %v", what, err)
			}
			if _, err := c.Update(t.Context(), before, metav1.UpdateOptions{}); err != nil {
				t.Errorf("%s: an update that changes nothing: %v", what, err)
			}
			_, err = c.Apply(t.Context(), o.name, &unstructured.Unstructured{Object: map[string]any{
				"apiVersion": before.GetAPIVersion(), "kind": before.GetKind(), "metadata": map[string]any{"name": o.name, "annotations": map[string]any{"x": "y"}},
			}}, metav1.ApplyOptions{FieldManager: "mallory", Force: true})
			if err := forbidden(err); err != nil {
				t.Errorf("%s: apply: %v", what, err)
			}
			if err := forbidden(c.Delete(t.Context(), o.name, metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)})); err != nil {
				t.Errorf("%s: delete: %v", what, err)
			}
			err = c.DeleteCollection(t.Context(), metav1.DeleteOptions{}, metav1.ListOptions{FieldSelector: "metadata.name=" + o.name})
			if err := forbidden(err); err != nil {
				t.Errorf("%s: delete all: %v", what, err)
			}
		}
		scale := &unstructured.Unstructured{Object: map[string]any{"apiVersion": "autoscaling/v1", "kind": "Scale", "metadata": map[string]any{"name": "d", "namespace": "web"}, "spec": map[string]any{"replicas": int64(3)}}}
		_, err = of(d, gvr("apps", "v1", "deployments"), "web").Update(t.Context(), scale, metav1.UpdateOptions{}, "scale")
		if err := forbidden(err, "publishes"); err != nil {
			t.Errorf("%s: scale: %v", who, err)
		}
	}
	// Operators in the space may say what they did.
	d, err := dynamic.NewForConfig(e.hostile()["a cluster admin"])
	if err != nil {
		t.Fatal(err)
	}
	_, err = of(d, gvr("example.com", "v1", "widgets"), "web").Patch(t.Context(), "w", types.MergePatchType, []byte(`{"spec":{"size":2}}`), metav1.PatchOptions{})
	if err := forbidden(err, "publication"); err != nil {
		t.Error(err)
	}
}

func of(d dynamic.Interface, resource schema.GroupVersionResource, namespace string) dynamic.ResourceInterface {
	if namespace == "" {
		return d.Resource(resource)
	}
	return d.Resource(resource).Namespace(namespace)
}

// M3: what is not Berth's can't be passed off as such, nor can labels and annotations of the tenant be changed.
func TestHostileLabelsOfBerthAreNobodysToSet(t *testing.T) {
	state := full()
	e := startEnv(t, state)
	for who, config := range e.hostile() {
		c := client(t, config)
		for _, label := range []string{v1alpha1.LabelPublication, access.LabelTenant, access.LabelRoleBinding} {
			labels := map[string]string{label: "solar"}
			_, err := c.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "forged", Labels: labels}}, metav1.CreateOptions{})
			if err := forbidden(err, label); err != nil {
				t.Errorf("%s: a config map with %s: %v", who, label, err)
			}
			_, err = c.RbacV1().RoleBindings("default").Create(t.Context(), &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: "forged", Labels: labels}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "admin"},
			}, metav1.CreateOptions{})
			if err := forbidden(err, label); err != nil {
				t.Errorf("%s: a role binding with %s: %v", who, label, err)
			}
			_, err = c.CoreV1().Namespaces().Patch(t.Context(), "default", types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:"x"}}}`, label), metav1.PatchOptions{}, "status")
			if err := forbidden(err, label); err != nil {
				t.Errorf("%s: a namespace with %s: %v", who, label, err)
			}
		}
	}
	c := client(t, e.hostile()["a cluster admin"])
	created, err := c.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: "web", Labels: map[string]string{"cost": "0", "own": "x"}, Annotations: map[string]string{access.AnnotationKept: `{"labels":["own"]}`},
	}}, metav1.CreateOptions{})
	if err != nil || created.Labels["cost"] != "42" || created.Labels["own"] != "x" || created.Annotations["example.com/team"] != "sun" {
		t.Fatalf("the namespace has %+v, %v", created, err)
	}
	for how, patch := range map[string]string{
		"a label": `{"metadata":{"labels":{"cost":"0"}}}`, "no label": `{"metadata":{"labels":null}}`, "an annotation": `{"metadata":{"annotations":{"example.com/team":"moon"}}}`,
		"no annotation": `{"metadata":{"annotations":{"example.com/team":null}}}`, "the list of them": `{"metadata":{"annotations":{"berth.dev/kept-metadata":null}}}`,
		"another list": `{"metadata":{"annotations":{"berth.dev/kept-metadata":"{}"}}}`,
	} {
		for _, subresource := range []string{"", "status"} {
			_, err := c.CoreV1().Namespaces().Patch(t.Context(), "web", types.MergePatchType, []byte(patch), metav1.PatchOptions{}, subresource)
			if err := forbidden(err, "metadata."); err != nil {
				t.Errorf("%s, %s: %v", how, subresource, err)
			}
		}
	}
	created.Labels = map[string]string{"kubernetes.io/metadata.name": "web"}
	_, err = c.CoreV1().Namespaces().Finalize(t.Context(), created, metav1.UpdateOptions{})
	if err == nil {
		now, err := c.CoreV1().Namespaces().Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil || now.Labels["cost"] != "42" {
			t.Errorf("by finalize: %+v, %v", now, err)
		}
	}
	if _, err := c.CoreV1().Namespaces().Patch(t.Context(), "web", types.MergePatchType, []byte(`{"metadata":{"labels":{"own":"y"}}}`), metav1.PatchOptions{}); err != nil {
		t.Errorf("a label of the tenant's own: %v", err)
	}
}

// O8, P1: webhooks, policies, and quotas of a user that refuse everything don't stop Berth, and what a user put in the way gives way.
func TestHostileNothingOfAUserStopsTheKeeper(t *testing.T) {
	e := startEnv(t, &access.State{Space: "solar"})
	c := e.admin()
	if err := createNamespace(t, c, "web"); err != nil {
		t.Fatal(err)
	}
	hold := metav1.ObjectMeta{
		Name: "berth-solar-0", Finalizers: []string{"example.com/hold"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: "gone", UID: "11111111-1111-1111-1111-111111111111"}},
	}
	limits := hold
	limits.OwnerReferences = nil
	if _, err := c.CoreV1().LimitRanges("web").Create(t.Context(), &corev1.LimitRange{ObjectMeta: limits}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	deleting := limits
	if err := c.CoreV1().LimitRanges("web").Delete(t.Context(), deleting.Name, metav1.DeleteOptions{}); err != nil { // its finalizer holds it
		t.Fatal(err)
	}
	if _, err := c.RbacV1().RoleBindings("web").Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "berth-solar-0-admin", Finalizers: []string{"example.com/hold"}},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := c.CoreV1().ResourceQuotas("web").Create(t.Context(), &corev1.ResourceQuota{
		ObjectMeta: metav1.ObjectMeta{Name: "none"}, Spec: corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{
			"count/networkpolicies.networking.k8s.io": *ptrQuantity("0"), "count/limitranges": *ptrQuantity("0"), "count/rolebindings.rbac.authorization.k8s.io": *ptrQuantity("0"),
		}},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	refuseAll(t, c)
	eventually(t, func() error { // until they are in force
		_, err := c.CoreV1().ConfigMaps("web").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "x-"}}, metav1.CreateOptions{})
		if err == nil {
			return errOr(nil)
		}
		return nil
	})
	state := full()
	state.Published = []access.Published{publish(v1alpha1.SameNamespace, configMap("web", "same", "one"))}
	e.source.Set(state)
	eventually(t, func() error {
		limits, err := c.CoreV1().LimitRanges("web").Get(t.Context(), "berth-solar-0", metav1.GetOptions{})
		if err != nil || len(limits.Spec.Limits) != 1 || len(limits.Finalizers) > 0 || limits.DeletionTimestamp != nil {
			return fmt.Errorf("the limit range is %+v: %w", limits, errOr(err))
		}
		if _, err := c.NetworkingV1().NetworkPolicies("web").Get(t.Context(), "berth-solar-0", metav1.GetOptions{}); err != nil {
			return err
		}
		b, err := c.RbacV1().RoleBindings("web").Get(t.Context(), "berth-solar-0-admin", metav1.GetOptions{})
		if err != nil || b.RoleRef.Name != "admin" {
			return fmt.Errorf("the binding is %+v: %w", b, errOr(err))
		}
		copied, err := c.CoreV1().ConfigMaps("web").Get(t.Context(), "same", metav1.GetOptions{})
		if err != nil || copied.Data["key"] != "one" {
			return fmt.Errorf("the copy is %+v: %w", copied, errOr(err))
		}
		n, err := c.CoreV1().Namespaces().Get(t.Context(), "web", metav1.GetOptions{})
		if err != nil || n.Labels["cost"] != "42" {
			return fmt.Errorf("the namespace is %+v: %w", n, errOr(err))
		}
		return nil
	})
}

// refuseAll registers what refuses each write in a namespace: a webhook that nobody answers, and a policy.
// The policy comes last: it would refuse the webhooks, which don't get their own kind and policies.
func refuseAll(t *testing.T, c kubernetes.Interface) {
	t.Helper()
	all := []admissionv1.RuleWithOperations{{
		Operations: []admissionv1.OperationType{admissionv1.OperationAll},
		Rule:       admissionv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*/*"}},
	}}
	hook := admissionv1.WebhookClientConfig{URL: ptr.To("https://127.0.0.1:1/refuse")}
	for _, create := range []func() error{
		func() error {
			_, err := c.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), &admissionv1.ValidatingWebhookConfiguration{
				ObjectMeta: metav1.ObjectMeta{Name: "refuse"}, Webhooks: []admissionv1.ValidatingWebhook{{
					Name: "refuse.example.com", ClientConfig: hook, Rules: all, SideEffects: ptr.To(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
				}},
			}, metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := c.AdmissionregistrationV1().MutatingWebhookConfigurations().Create(t.Context(), &admissionv1.MutatingWebhookConfiguration{
				ObjectMeta: metav1.ObjectMeta{Name: "refuse"}, Webhooks: []admissionv1.MutatingWebhook{{
					Name: "refuse.example.com", ClientConfig: hook, Rules: all, SideEffects: ptr.To(admissionv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
				}},
			}, metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := c.AdmissionregistrationV1().ValidatingAdmissionPolicies().Create(t.Context(), &admissionv1.ValidatingAdmissionPolicy{
				ObjectMeta: metav1.ObjectMeta{Name: "refuse"}, Spec: admissionv1.ValidatingAdmissionPolicySpec{
					FailurePolicy: ptr.To(admissionv1.Fail), Validations: []admissionv1.Validation{{Expression: "false"}},
					MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: all[0]}}},
				},
			}, metav1.CreateOptions{})
			return err
		},
		func() error {
			_, err := c.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings().Create(t.Context(), &admissionv1.ValidatingAdmissionPolicyBinding{
				ObjectMeta: metav1.ObjectMeta{Name: "refuse"}, Spec: admissionv1.ValidatingAdmissionPolicyBindingSpec{
					PolicyName: "refuse", ValidationActions: []admissionv1.ValidationAction{admissionv1.Deny},
				},
			}, metav1.CreateOptions{})
			return err
		},
	} {
		if err := create(); err != nil && !apierrors.IsForbidden(err) && !apierrors.IsInternalError(err) {
			t.Fatal(err)
		}
	}
}

// O3, O8: a namespace that is made again has everything again, and a user who deletes in a loop costs bounded work.
func TestHostileRenewedNamespacesHaveEverything(t *testing.T) {
	e := startEnv(t, full())
	c := e.admin()
	for range 3 {
		if err := createNamespace(t, c, "web"); err != nil {
			t.Fatal(err)
		}
		wantBindings(t, c, "web", "berth-solar-0-admin", "berth-solar-1-berth-namespace-deleter", "berth-solar-view")
		eventually(t, func() error {
			_, err := c.CoreV1().LimitRanges("web").Get(t.Context(), "berth-solar-0", metav1.GetOptions{})
			return err
		})
		if err := c.CoreV1().Namespaces().Delete(t.Context(), "web", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error {
			_, err := c.CoreV1().Namespaces().Get(t.Context(), "web", metav1.GetOptions{})
			if !apierrors.IsNotFound(err) {
				return errOr(err)
			}
			return nil
		})
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package publication

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	clientretry "k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/testhost"
)

// P1: what is published follows its sources: new ones, changes, other labels, deletions, and at last that of the publication.
func TestPublishedObjectsFollowTheirSources(t *testing.T) {
	e := newEnv(t)
	e.start(t, "")
	first, second := configMap("follow-a", marked(), map[string]string{"a": "1"}), configMap("follow-b", nil, nil)
	e.make(t, first, second)
	p := e.publish(t, "follow", v1alpha1.PublicationSpec{Sources: []v1alpha1.PublicationSource{configMaps()}})
	e.publishes(t, "follow", "follow-a")
	e.reports(t, "follow", v1alpha1.ReasonPublished)
	objects, err := e.objects(t.Context(), "follow")
	want := []map[string]any{{"apiVersion": "v1", "kind": "ConfigMap", "data": map[string]any{"a": "1"}, "metadata": map[string]any{"namespace": "default", "name": "follow-a"}}}
	if diff := cmp.Diff(want, objects); err != nil || diff != "" {
		t.Errorf("%v, (-want +got):\n%s", err, diff)
	}

	first.Data = map[string]string{"b": "2"}
	second.Labels = marked()
	for _, o := range []client.Object{first, second} {
		if err := e.Update(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	e.publishes(t, "follow", "follow-a", "follow-b")
	testhost.Eventually(t, "follow a change", func(ctx context.Context) error {
		objects, err := e.objects(ctx, "follow")
		for _, o := range objects {
			if data, _ := o["data"].(map[string]any); data["b"] == "2" && data["a"] == nil {
				return err
			}
		}
		return errors.Join(err, fmt.Errorf("published are %v", objects))
	})

	second.Labels = nil
	if err := e.Update(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	e.publishes(t, "follow", "follow-a")
	if err := e.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	e.publishes(t, "follow")
	second.Labels = marked()
	if err := e.Update(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	e.publishes(t, "follow", "follow-b")
	if err := e.Delete(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	e.publishes(t, "follow")
}

// P1: sources are selected by name, by selector, or by the label, in any kind, and each is published once.
func TestSourcesAreSelectedByNameSelectorOrLabel(t *testing.T) {
	e := newEnv(t)
	e.start(t, "")
	e.make(t, configMap("select-name", nil, nil), configMap("select-label", marked(), nil), configMap("select-own", map[string]string{"select": "own"}, nil),
		configMap("select-none", nil, nil), &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "select-role", Labels: marked()}},
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "select-other"}})
	byName, bySelector := configMaps(), configMaps()
	byName.Name, bySelector.Selector = "select-name", &metav1.LabelSelector{MatchLabels: map[string]string{"select": "own"}}
	both := configMaps()
	both.Selector = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "select", Operator: metav1.LabelSelectorOpExists}}}
	p := e.publish(t, "select", v1alpha1.PublicationSpec{Sources: []v1alpha1.PublicationSource{
		byName, bySelector, both, configMaps(), {APIVersion: "rbac.authorization.k8s.io/v1", Kind: "ClusterRole"},
	}})
	e.publishes(t, "select", "select-name", "select-label", "select-own", "select-role")
	testhost.Eventually(t, "count the objects", func(ctx context.Context) error {
		if err := e.Get(ctx, client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		if p.Status.Objects == nil || *p.Status.Objects != 4 {
			return fmt.Errorf("the status is %+v", p.Status)
		}
		return nil
	})
	e.change(t, p, func() { p.Spec.Sources = p.Spec.Sources[:1] })
	e.publishes(t, "select", "select-name")
}

// P1: one watch serves all publications with the same source, and ends with the last of them.
func TestPublicationsShareAWatchThatEndsWithTheLast(t *testing.T) {
	e := newEnv(t)
	e.start(t, "")
	e.make(t, configMap("share-a", marked(), nil))
	spec := v1alpha1.PublicationSpec{Sources: []v1alpha1.PublicationSource{configMaps()}}
	first, second := e.publish(t, "share-1", spec), e.publish(t, "share-2", spec)
	e.publishes(t, "share-1", "share-a")
	e.publishes(t, "share-2", "share-a")
	if n := e.watches.count(); n != 1 {
		t.Errorf("there are %d watches", n)
	}
	if err := e.Delete(t.Context(), first); err != nil {
		t.Fatal(err)
	}
	e.publishes(t, "share-1")
	e.make(t, configMap("share-b", marked(), nil))
	e.publishes(t, "share-2", "share-a", "share-b")
	if err := e.Delete(t.Context(), second); err != nil {
		t.Fatal(err)
	}
	testhost.Eventually(t, "end the watch", func(context.Context) error {
		if n := e.watches.count(); n != 0 {
			return fmt.Errorf("there are %d watches", n)
		}
		return nil
	})
}

// P1: a kind may be installed after its publication, and removed before.
func TestKindsMayComeAndGo(t *testing.T) {
	e := newEnv(t)
	e.timeout = time.Second
	e.start(t, "")
	e.publish(t, "kinds", v1alpha1.PublicationSpec{Sources: []v1alpha1.PublicationSource{{APIVersion: "example.com/v1", Kind: "Widget"}}})
	e.reports(t, "kinds", v1alpha1.ReasonUnknownKind, "spec.sources[0]", "no kind Widget in example.com/v1")
	definition := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "widgets.example.com"},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: "example.com", Scope: apiextensionsv1.ClusterScoped, Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "widgets", Kind: "Widget"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{
				OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)},
			}}},
		},
	}
	e.make(t, definition)
	widget := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "kinds-a", "labels": map[string]any{v1alpha1.LabelPublish: "true"}}, "spec": map[string]any{"size": int64(3)},
	}}
	testhost.Eventually(t, "create an object of the kind", func(ctx context.Context) error { return e.Create(ctx, widget.DeepCopy()) })
	e.publishes(t, "kinds", "kinds-a")
	e.reports(t, "kinds", v1alpha1.ReasonPublished)
	if err := e.Delete(t.Context(), definition); err != nil {
		t.Fatal(err)
	}
	e.publishes(t, "kinds")
	e.reports(t, "kinds", v1alpha1.ReasonUnknownKind, "no kind Widget in example.com/v1 any more")
}

// P1: the admin reads which right is missing, and what was published stays when a right is taken.
func TestASourceThatMayNotBeReadIsReported(t *testing.T) {
	e := newEnv(t)
	e.make(t,
		&rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "rights-operator"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{"berth.dev"}, Resources: []string{"*"}, Verbs: []string{"*"}}}},
		binding("rights-operator"), configMap("rights-a", marked(), nil))
	e.start(t, "publisher")
	e.publish(t, "rights", v1alpha1.PublicationSpec{Sources: []v1alpha1.PublicationSource{configMaps()}})
	e.reports(t, "rights", v1alpha1.ReasonSourceForbidden, "may not read configmaps in namespace default", "label berth.dev/aggregate-to-publisher=true",
		`get, list, and watch of resource configmaps in API group ""`)
	granted := binding("rights-reader")
	e.make(t, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "rights-reader"}, Rules: []rbacv1.PolicyRule{{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"get", "list", "watch"}}}}, granted)
	e.publishes(t, "rights", "rights-a")
	e.reports(t, "rights", v1alpha1.ReasonPublished)
	if err := e.Delete(t.Context(), granted); err != nil {
		t.Fatal(err)
	}
	again := e.publish(t, "rights-again", v1alpha1.PublicationSpec{Sources: []v1alpha1.PublicationSource{{APIVersion: "v1", Kind: "ConfigMap", Namespace: "kube-system"}}})
	e.reports(t, again.Name, v1alpha1.ReasonSourceForbidden, "kube-system")
	e.publishes(t, "rights", "rights-a")
}

// P1: what was published is unchanged after a restart, and what changed meanwhile is caught up with.
func TestARestartCatchesUp(t *testing.T) {
	e := newEnv(t)
	stop := e.start(t, "")
	kept, deleted := configMap("restart-kept", marked(), nil), configMap("restart-deleted", marked(), nil)
	e.make(t, kept, deleted)
	spec := v1alpha1.PublicationSpec{Sources: []v1alpha1.PublicationSource{configMaps()}}
	e.publish(t, "restart", spec)
	gone := e.publish(t, "restart-gone", spec)
	e.publishes(t, "restart", "restart-kept", "restart-deleted")
	e.publishes(t, "restart-gone", "restart-kept", "restart-deleted")
	before := e.versions(t, "restart")
	stop()
	for _, o := range []client.Object{deleted, gone} {
		if err := e.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	e.start(t, "")
	e.publishes(t, "restart", "restart-kept")
	e.publishes(t, "restart-gone")
	for name, version := range e.versions(t, "restart") {
		if before[name] != version {
			t.Errorf("PublishedObject %s was written without need", name)
		}
	}
}

// P1: what could break a space, and credentials of the host, are never published.
func TestHostileSourcesAreRefused(t *testing.T) {
	e := newEnv(t)
	e.start(t, "")
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "refuse-token", Labels: marked(), Annotations: map[string]string{corev1.ServiceAccountNameKey: "refuse"}},
		Type:       corev1.SecretTypeServiceAccountToken,
	}
	e.make(t, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "refuse"}}, secret,
		&corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "refuse-not", Labels: marked()}, StringData: map[string]string{"a": "b"}})
	e.publish(t, "refuse", v1alpha1.PublicationSpec{Sources: []v1alpha1.PublicationSource{
		{APIVersion: "v1", Kind: "Secret", Namespace: "default"}, {APIVersion: "v1", Kind: "Node"}, {APIVersion: "berth.dev/v1alpha1", Kind: "Space"},
		{APIVersion: "apiregistration.k8s.io/v1", Kind: "APIService"}, {APIVersion: "v1", Kind: "Namespace", Name: "kube-system"}, configMaps(),
		{APIVersion: "v1", Kind: "ConfigMap"}, {APIVersion: "v1", Kind: "Namespace", Namespace: "default"}, {APIVersion: "a/b/c", Kind: "Thing"},
	}})
	e.publishes(t, "refuse", "refuse-not")
	e.reports(t, "refuse", v1alpha1.ReasonInvalidSpec,
		"Secret default/refuse-token can't be published: a Secret of type kubernetes.io/service-account-token is a credential of the host",
		"spec.sources[1]: objects of kind Node can't be published", "spec.sources[2]: objects of kind Space.berth.dev can't be published",
		"spec.sources[3]: objects of kind APIService.apiregistration.k8s.io can't be published", "Namespace kube-system can't be published",
		"spec.sources[6].namespace: objects of kind ConfigMap are in namespaces; set the one", "spec.sources[7].namespace: objects of kind Namespace are in no namespace",
		`spec.sources[8].apiVersion: "a/b/c" is no group and version`)
}

// P1, L3: a publication is bounded, and the admin reads what is left out.
func TestAPublicationIsBounded(t *testing.T) {
	e := newEnv(t)
	e.start(t, "")
	large := strings.Repeat("x", 900<<10)
	for i := range 6 {
		e.make(t, configMap(fmt.Sprintf("bound-%d", i), map[string]string{"bound": "large"}, map[string]string{"a": large}))
	}
	source := configMaps()
	source.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"bound": "large"}}
	p := e.publish(t, "bound", v1alpha1.PublicationSpec{Sources: []v1alpha1.PublicationSource{source}})
	e.publishes(t, "bound", "bound-0", "bound-1", "bound-2", "bound-3")
	e.reports(t, "bound", v1alpha1.ReasonTooManyObjects, "2 objects are left out, the first of them ConfigMap default/bound-4", "at most 256 objects and 4096 KiB")
	e.change(t, p, func() { p.Spec.Fields = []v1alpha1.PublicationField{{Path: "data.b", Expression: "space.name"}} })
	e.publishes(t, "bound")
	e.reports(t, "bound", v1alpha1.ReasonTooManyObjects, "6 objects are left out", "512 KiB")
}

// P1: a field that means nothing is reported, and what was published before stays.
func TestFieldsAreChecked(t *testing.T) {
	e := newEnv(t)
	e.start(t, "")
	e.make(t, configMap("fields-a", marked(), nil), tenant("fields-tenant", nil), space("fields-space", "fields-tenant"))
	p := e.publish(t, "fields", v1alpha1.PublicationSpec{
		Sources: []v1alpha1.PublicationSource{configMaps()}, Fields: []v1alpha1.PublicationField{{Path: "data.tenant", Expression: "tenant.name"}},
	})
	e.publishes(t, "fields", "fields-a")
	e.reports(t, "fields", v1alpha1.ReasonPublished)
	for _, c := range []struct{ path, expression, reason, want string }{
		{"data..a", "'x'", v1alpha1.ReasonInvalidSpec, "spec.fields[0].path"},
		{"metadata.name", "'x'", v1alpha1.ReasonInvalidSpec, "can't be set"},
		{"data.tenant", "tenant.nme", v1alpha1.ReasonInvalidSpec, "spec.fields[0].expression, for data.tenant: compile the expression"},
		{"data.tenant", "duration('1s')", v1alpha1.ReasonInvalidSpec, "has no form in JSON"},
		{"data.tenant", "tenant.labels.absent", v1alpha1.ReasonFieldsFailed, "no such key: absent, in ConfigMap default/fields-a for space fields-space"},
		{"kind2.x", "'x'", v1alpha1.ReasonPublished, ""},
	} {
		e.change(t, p, func() { p.Spec.Fields = []v1alpha1.PublicationField{{Path: c.path, Expression: c.expression}} })
		e.reports(t, "fields", c.reason, c.want)
		e.publishes(t, "fields", "fields-a")
	}
}

// change changes a publication, and tries again if the reconciler has written it meanwhile.
func (e *env) change(t *testing.T, p *v1alpha1.Publication, f func()) {
	t.Helper()
	err := clientretry.RetryOnConflict(clientretry.DefaultRetry, func() error {
		if err := e.Get(t.Context(), client.ObjectKeyFromObject(p), p); err != nil {
			return err
		}
		f()
		return e.Update(t.Context(), p)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (e *env) versions(t *testing.T, publication string) map[string]string {
	t.Helper()
	list := &v1alpha1.PublishedObjectList{}
	if err := e.List(t.Context(), list, client.MatchingLabels{v1alpha1.LabelPublication: publication}); err != nil {
		t.Fatal(err)
	}
	versions := map[string]string{}
	for _, o := range list.Items {
		versions[o.Name] = o.ResourceVersion
	}
	return versions
}

func binding(role string) *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: role}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "publisher"}},
	}
}

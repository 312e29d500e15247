// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// shareIn writes a SharedObject to the namespace of a space, as the process of the space does, or one that was taken over.
func (e *env) shareIn(space, name string, scope v1alpha1.ShareScope, object string) *v1alpha1.SharedObject {
	e.Helper()
	shared := &v1alpha1.SharedObject{
		ObjectMeta: metav1.ObjectMeta{Namespace: e.hostNamespace(space), Name: name},
		Spec:       v1alpha1.SharedObjectSpec{Scope: scope, Object: runtime.RawExtension{Raw: []byte(object)}},
	}
	e.create(shared)
	e.Cleanup(func() { _ = e.Delete(context.Background(), shared) })
	return shared
}

// hostNamespace creates the namespace of a space on the host, which the platform does, and returns its name.
func (e *env) hostNamespace(space string) string {
	e.Helper()
	core, err := kubernetes.NewForConfig(e.host.Config())
	if err != nil {
		e.Fatal(err)
	}
	name := "berth-" + space
	if _, err := core.CoreV1().Namespaces().Create(e.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		e.Fatal(err)
	}
	return name
}

// sharesOf returns what spaces receive, and what is published of a space.
func (e *env) sharesOf(ctx context.Context, sharer string) (lines []string, err error) {
	spaces, objects := &v1alpha1.SpaceList{}, &v1alpha1.PublishedObjectList{}
	if err := errors.Join(e.List(ctx, spaces), e.List(ctx, objects, client.MatchingLabels{v1alpha1.LabelSharedBy: sharer})); err != nil {
		return nil, err
	}
	for i := range spaces.Items {
		names := slices.DeleteFunc(slices.Clone(spaces.Items[i].Spec.Publications), func(name string) bool { return !strings.HasPrefix(name, "share.") })
		if len(names) > 0 {
			lines = append(lines, spaces.Items[i].Name+" receives "+strings.Join(names, " "))
		}
	}
	for i := range objects.Items {
		lines = append(lines, objects.Items[i].Labels[v1alpha1.LabelPublication]+": "+string(objects.Items[i].Spec.Object.Raw))
	}
	slices.Sort(lines)
	return lines, nil
}

func (e *env) sharesAre(sharer string, want ...string) {
	e.Helper()
	slices.Sort(want)
	e.eventually("what "+sharer+" shares", func(ctx context.Context) error {
		got, err := e.sharesOf(ctx, sharer)
		if diff := cmp.Diff(want, got); err == nil && diff != "" {
			err = errors.New(diff)
		}
		return err
	})
}

const (
	sharedSettings = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"settings","namespace":"web"}}`
	sharedBinding  = `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"name":"auditors","namespace":"web"},` +
		`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"},"subjects":[{"kind":"User","name":"bob"}]}`
	sharedRole = `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"operators"},"rules":null}`
)

func namespaceAdmins(s *v1alpha1.TenantSpec) { s.OwnerProfile = v1alpha1.NamespaceAdmin }

// H8, H5, M3: whoever takes over the process of a space reaches the tenants below with what can be shared, and nobody with anything
// else. The names of SharedObjects limit their number.
func TestHostileSharedObjectsReachNobodyElse(t *testing.T) {
	e := newEnv(t)
	e.run()
	e.reason(v1alpha1.SystemTenant, v1alpha1.ReasonActive)
	e.create(tenant("acme"), tenant("acme-dev", below("acme")), tenant("acme-eu", below("acme-dev")), tenant("acme-secret", below("acme"), private),
		tenant("secret-below", below("acme-secret")), tenant("acme-closed", below("acme"), namespaceAdmins), tenant("other"))
	e.spaceIs("secret-below", "inherits", func(s *v1alpha1.Space) bool { return s.Annotations[v1alpha1.AnnotationInheritsFrom] == "acme-secret" })
	// Those of acme-dev must not reach its parent, nor siblings.
	e.shareIn("acme-dev", "shared-00", v1alpha1.ScopeDescendants, sharedSettings)
	e.sharesAre("acme-dev", "acme-eu receives share.01.acme-dev", "share.01.acme-dev: "+sharedSettings)

	// Whoever creates a Space gets nothing by an annotation.
	e.create(&v1alpha1.Space{
		ObjectMeta: metav1.ObjectMeta{Name: "other-liar", Annotations: map[string]string{v1alpha1.AnnotationInheritsFrom: "acme-dev"}}, Spec: v1alpha1.SpaceSpec{TenantName: "other"},
	})
	e.spaceIs("other-liar", "inherits nothing", func(s *v1alpha1.Space) bool {
		if slices.Contains(s.Spec.Publications, "share.01.acme-dev") {
			t.Errorf("it receives %v", s.Spec.Publications)
		}
		_, set := s.Annotations[v1alpha1.AnnotationInheritsFrom]
		return !set && s.Labels[v1alpha1.LabelTenant] == "other"
	})

	for i, object := range []string{
		`{}`, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"a","namespace":"web"}}`,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"kube-system"}}`, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"kube-root-ca.crt","namespace":"web"}}`,
		`{"apiVersion":"admissionregistration.k8s.io/v1","kind":"ValidatingAdmissionPolicy","metadata":{"name":"a"}}`,
		`{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"a"}}`,
		`{"apiVersion":"berth.dev/v1alpha1","kind":"Space","metadata":{"name":"a"}}`, `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"a"}}`,
		`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRole","metadata":{"name":"cluster-admin"}}`,
		`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"a"},"subjects":[{"kind":"Group","name":"system:unauthenticated"}]}`,
		`{"apiVersion":"v1","kind":"Secret","type":"kubernetes.io/service-account-token","metadata":{"name":"a","namespace":"web"}}`,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"large","namespace":"web"},"data":{"a":"` + strings.Repeat("a", 1<<20) + `"}}`,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"` + strings.Repeat("a", 1<<19) + `","namespace":"web"}}`, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"A","namespace":"web"}}`,
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","namespace":"we.b"}}`, `{"apiVersion":"v1","kind":"` + strings.Repeat("a", 1<<19) + `","metadata":{"name":"a","namespace":"web"}}`,
	} {
		e.shareIn("acme", fmt.Sprintf("shared-%02x", i), v1alpha1.ScopeDescendants, object)
	}
	e.shareIn("acme", "shared-f0", v1alpha1.ScopeChildren, strings.Replace(sharedSettings, `"name"`, `"labels":{"berth.dev/share":"children","berth.dev/tenant":"acme"},"ownerReferences":[],"name"`, 1))
	e.shareIn("acme", "shared-f1", v1alpha1.ScopeDescendants, sharedSettings) // twice
	e.shareIn("acme", "shared-f2", v1alpha1.ScopeDescendants, sharedBinding)
	e.shareIn("acme", "shared-f3", v1alpha1.ScopeDescendants, sharedRole)
	everything := []string{
		"acme-closed receives share.00.acme share.00.acme.children", "acme-dev receives share.00.acme share.00.acme.children share.00.acme.space", "acme-eu receives share.00.acme share.00.acme.space share.01.acme-dev",
		"share.00.acme.children: " + sharedSettings, "share.00.acme: " + sharedBinding, "share.00.acme.space: " + sharedRole,
	}
	e.sharesAre("acme", everything...)
	e.eventually("an event says what is left out", func(ctx context.Context) error {
		list := &eventsv1.EventList{}
		err := e.List(ctx, list)
		for i := range list.Items {
			if event := &list.Items[i]; event.Reason == v1alpha1.ReasonSharesLeftOut && event.Regarding.Name == "acme" && strings.Contains(event.Note, "metadata.namespace: kube-system") {
				return nil
			}
		}
		return fmt.Errorf("there is none (%w)", err)
	})
	for _, name := range []string{"shared-100", "shared-0", "share.00.acme", "shared-zz"} {
		shared := &v1alpha1.SharedObject{ObjectMeta: metav1.ObjectMeta{Namespace: "berth-acme", Name: name}}
		shared.Spec.Scope, shared.Spec.Object.Raw = v1alpha1.ScopeChildren, []byte(sharedSettings)
		if err := e.Create(t.Context(), shared); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "metadata.name") {
			t.Errorf("a SharedObject %s: %v", name, err)
		}
	}

	// A tenant whose owners have no rights outside of namespaces shares no such rights, whatever its process writes.
	change(e, tenant("acme"), func(one *v1alpha1.Tenant) { one.Spec.OwnerProfile = v1alpha1.NamespaceAdmin })
	e.sharesAre("acme", "acme-closed receives share.00.acme share.00.acme.children", "acme-dev receives share.00.acme share.00.acme.children", "acme-eu receives share.00.acme share.01.acme-dev",
		"share.00.acme.children: "+sharedSettings, "share.00.acme: "+sharedBinding)

	// No Publication passes for what a tenant shares.
	publication := &v1alpha1.Publication{ObjectMeta: metav1.ObjectMeta{Name: "share.00.acme"}}
	publication.Spec.Sources = []v1alpha1.PublicationSource{{APIVersion: "v1", Kind: "ConfigMap", Namespace: "default"}}
	if err := e.Create(t.Context(), publication); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "names that begin with share.") {
		t.Errorf("a Publication of that name: %v", err)
	}
}

// S7, H8: an operator that is killed at any of its writes, and started again, publishes all that is shared, and nothing else.
func TestAnOperatorThatIsKilledPublishesWhatIsShared(t *testing.T) {
	e := newEnv(t)
	stop := e.run()
	e.reason(v1alpha1.SystemTenant, v1alpha1.ReasonActive)
	e.create(tenant("acme"), tenant("acme-dev", below("acme")))
	e.spaceIs("acme-dev", "inherits", func(s *v1alpha1.Space) bool { return s.Annotations[v1alpha1.AnnotationInheritsFrom] == "acme" })
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	for n := 1; ; n++ {
		var kills int
		for _, before := range []bool{true, false} {
			t.Run(fmt.Sprintf("killed at write %d, lost %v", n, before), func(t *testing.T) {
				e := &env{TB: t, WithWatch: e.WithWatch, host: e.host}
				shared := []*v1alpha1.SharedObject{
					e.shareIn("acme", "shared-00", v1alpha1.ScopeChildren, sharedSettings), e.shareIn("acme", "shared-01", v1alpha1.ScopeDescendants, sharedBinding),
				}
				k := e.runKilled(n, before, 1)
				e.sharesAre("acme", "acme-dev receives share.00.acme share.00.acme.children", "share.00.acme.children: "+sharedSettings, "share.00.acme: "+sharedBinding)
				for _, one := range shared {
					if err := e.Delete(t.Context(), one); err != nil {
						t.Fatal(err)
					}
				}
				e.sharesAre("acme")
				k.stop()
				kills = k.kills
			})
		}
		if kills < 2 || t.Failed() {
			break
		}
	}
}

// P1, H8: a space that can't have all publications keeps those of admins, and an event says what to do.
func TestSharesDontDisplacePublications(t *testing.T) {
	e := newEnv(t)
	e.run()
	e.reason(v1alpha1.SystemTenant, v1alpha1.ReasonActive)
	e.create(tenant("acme"), tenant("acme-dev", below("acme")))
	for i := range 64 {
		one := &v1alpha1.Publication{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("z-%02d", i)}}
		one.Spec.Sources = []v1alpha1.PublicationSource{{APIVersion: "v1", Kind: "ConfigMap", Namespace: "default"}}
		e.create(one)
		t.Cleanup(func() { _ = e.Delete(context.Background(), one) })
	}
	full := func(s *v1alpha1.Space) bool {
		return len(s.Spec.Publications) == 64 && !slices.ContainsFunc(s.Spec.Publications, func(name string) bool { return strings.HasPrefix(name, "share.") })
	}
	e.spaceIs("acme-dev", "has all publications that it can have", full)
	e.shareIn("acme", "shared-00", v1alpha1.ScopeChildren, sharedSettings)
	e.eventually("an event says so", func(ctx context.Context) error {
		list := &eventsv1.EventList{}
		err := e.List(ctx, list)
		for i := range list.Items {
			if event := &list.Items[i]; event.Reason == v1alpha1.ReasonTooManyPublications && event.Regarding.Name == "acme-dev" {
				return nil
			}
		}
		return fmt.Errorf("there is none (%w)", err)
	})
	e.spaceIs("acme-dev", "still has them", full)
}

// M3, H8: a tenant in the middle of the tree that shares from very many spaces doesn't crowd out what a tenant above it shares.
func TestHostileTenantInTheMiddleDoesNotCrowdOutTheTop(t *testing.T) {
	e := newEnv(t)
	e.run()
	e.create(tenant("zeta"), tenant("middle", below("zeta")), tenant("grandchild", below("middle")))
	e.shareIn("zeta", "shared-00", v1alpha1.ScopeDescendants, sharedSettings)
	for i := range 33 {
		name := fmt.Sprintf("middle-%02d", i)
		one := &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: name}}
		one.Spec.TenantName = "middle"
		e.create(one)
		e.shareIn(name, "shared-00", v1alpha1.ScopeDescendants, strings.ReplaceAll(sharedSettings, "settings", fmt.Sprintf("a-%d", i)))
		e.shareIn(name, "shared-01", v1alpha1.ScopeChildren, strings.ReplaceAll(sharedSettings, "settings", fmt.Sprintf("b-%d", i)))
	}
	e.spaceIs("grandchild", "has 64 publications, with that of the top", func(s *v1alpha1.Space) bool {
		return len(s.Spec.Publications) == 64 && slices.Contains(s.Spec.Publications, "share.00.zeta")
	})
}

// L3: what nobody receives is not published: each platform keeps what is published in memory.
func TestOnlyWhatASpaceReceivesIsPublished(t *testing.T) {
	e := newEnv(t)
	e.run()
	e.create(tenant("acme"))
	e.spaceIs("acme", "exists", func(*v1alpha1.Space) bool { return true })
	e.shareIn("acme", "shared-00", v1alpha1.ScopeDescendants, sharedSettings)
	e.sharesAre("acme")
	e.create(tenant("acme-dev", below("acme")))
	e.sharesAre("acme", "acme-dev receives share.00.acme", "share.00.acme: "+sharedSettings)
	if err := e.Delete(t.Context(), tenant("acme-dev")); err != nil {
		t.Fatal(err)
	}
	e.sharesAre("acme")
}

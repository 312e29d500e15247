// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	etcd "go.etcd.io/etcd/client/v3/kubernetes"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/vcluster/pki"
)

// mayReadSecrets reports whether an admin has its rights.
func mayReadSecrets(t *testing.T, admin kubernetes.Interface) error {
	t.Helper()
	_, err := admin.CoreV1().Secrets(metav1.NamespaceSystem).List(t.Context(), metav1.ListOptions{Limit: 1})
	return err
}

// X2: an admin is in no group that RBAC does not rule, and may do everything from the first request on.
func TestAdminsHaveTheirRightsByRBAC(t *testing.T) {
	gateway := newTestGateway(t)
	p := gateway.start(t, gateway.config(t, "admins"))
	client := clientset(t, admin(t, p))
	if err := mayReadSecrets(t, client); err != nil {
		t.Errorf("the first request: %v", err)
	}
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if groups := review.Status.UserInfo.Groups; !slices.Contains(groups, pki.AdminGroup) || slices.Contains(groups, "system:masters") {
		t.Errorf("an admin is in %v", groups)
	}
	stranger := clientset(t, user(t, p, "admin"))
	if err := mayReadSecrets(t, stranger); !apierrors.IsForbidden(err) {
		t.Errorf("a user of the admin's name: %v", err)
	}
}

// X2: a space of a Berth that made admins of system:masters has none of the rights of berth:admins in its store. Its
// admins have them from the first request on.
func TestAdminsOfAnOlderSpaceHaveTheirRights(t *testing.T) {
	gateway := newTestGateway(t)
	c := gateway.config(t, "older")
	stop(t, gateway.start(t, c))
	store, err := kine.Open(t.Context(), kine.Options{Path: filepath.Join(c.Dir, "store.db"), Name: c.Name})
	if err != nil {
		t.Fatal(err)
	}
	const key = "/registry/clusterrolebindings/" + pki.AdminGroup
	stored, err := store.Client().Kubernetes.Get(t.Context(), key, etcd.GetOptions{})
	if err != nil || stored.KV == nil {
		t.Fatalf("the binding is not in the store: %v", err)
	}
	if _, err := store.Client().Kubernetes.OptimisticDelete(t.Context(), key, stored.KV.ModRevision, etcd.DeleteOptions{GetOnFailure: true}); err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	p := gateway.start(t, c)
	if err := mayReadSecrets(t, clientset(t, admin(t, p))); err != nil {
		t.Errorf("the first request: %v", err)
	}
	if err := mayReadSecrets(t, clientset(t, user(t, p, "admin", "system:masters"))); err != nil {
		t.Errorf("a kubeconfig of before: %v", err)
	}
}

// X2: whatever a tenant who may do everything does to the admins' rights, they come back while the space runs, past
// webhooks of the tenant's that refuse it.
func TestHostileTenantsDoNotLockAdminsOut(t *testing.T) {
	gateway := newTestGateway(t)
	p := gateway.start(t, gateway.config(t, "lockout"))
	client := clientset(t, admin(t, p))
	bindings, roles := client.RbacV1().ClusterRoleBindings(), client.RbacV1().ClusterRoles()
	noUpdates := map[string]string{rbacv1.AutoUpdateAnnotationKey: "false"}
	get := func() *rbacv1.ClusterRoleBinding {
		t.Helper()
		b, err := bindings.Get(t.Context(), pki.AdminGroup, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return b
	}
	steps := []struct {
		name string
		do   func() error
	}{
		{"delete the binding", func() error { return bindings.Delete(t.Context(), pki.AdminGroup, metav1.DeleteOptions{}) }},
		{"take its subjects, and refuse updates", func() error {
			b := get()
			b.Subjects, b.Annotations = nil, noUpdates
			_, err := bindings.Update(t.Context(), b, metav1.UpdateOptions{})
			return err
		}},
		{"take the rules of the role", func() error {
			r, err := roles.Get(t.Context(), "cluster-admin", metav1.GetOptions{})
			if err != nil {
				return err
			}
			r.Rules, r.Annotations = nil, noUpdates
			_, err = roles.Update(t.Context(), r, metav1.UpdateOptions{})
			return err
		}},
		{"delete the role", func() error { return roles.Delete(t.Context(), "cluster-admin", metav1.DeleteOptions{}) }},
		{"refuse all changes of RBAC, by a webhook that answers nobody", func() error {
			_, err := client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Create(t.Context(), &admissionregistrationv1.ValidatingWebhookConfiguration{
				ObjectMeta: metav1.ObjectMeta{Name: "lockout"},
				Webhooks: []admissionregistrationv1.ValidatingWebhook{{
					Name: "lockout.example.com", SideEffects: ptr.To(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"},
					ClientConfig: admissionregistrationv1.WebhookClientConfig{URL: ptr.To("https://lockout.example.com/")}, TimeoutSeconds: ptr.To[int32](1),
					Rules: []admissionregistrationv1.RuleWithOperations{{
						Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.Create, admissionregistrationv1.Update},
						Rule:       admissionregistrationv1.Rule{APIGroups: []string{rbacv1.GroupName}, APIVersions: []string{"*"}, Resources: []string{"*"}},
					}},
				}},
			}, metav1.CreateOptions{})
			if err != nil && !apierrors.IsAlreadyExists(err) { // it exists if the deletion failed before
				return err
			}
			return bindings.Delete(t.Context(), pki.AdminGroup, metav1.DeleteOptions{})
		}},
		{"remove the webhook", func() error {
			return client.AdmissionregistrationV1().ValidatingWebhookConfigurations().Delete(t.Context(), "lockout", metav1.DeleteOptions{})
		}},
		{"bind the name to another role, and keep that from being deleted", func() error {
			if err := bindings.Delete(t.Context(), pki.AdminGroup, metav1.DeleteOptions{}); err != nil {
				return err
			}
			_, err := clientset(t, p.Loopback()).RbacV1().ClusterRoleBindings().Create(t.Context(), &rbacv1.ClusterRoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: pki.AdminGroup, Finalizers: []string{"example.com/stay"}},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
			}, metav1.CreateOptions{})
			return err // AlreadyExists if it came back faster: once more
		}},
	}
	for _, step := range steps {
		eventually(t, func() error { return step.do() })
		eventually(t, func() error {
			if err := mayReadSecrets(t, client); err != nil {
				return err
			}
			b, err := bindings.Get(t.Context(), pki.AdminGroup, metav1.GetOptions{})
			if err == nil && (b.RoleRef.Name != "cluster-admin" || len(b.Subjects) != 1) {
				err = fmt.Errorf("the binding is %v of %v", b.RoleRef, b.Subjects)
			}
			if err != nil {
				return fmt.Errorf("%s: %w", step.name, err)
			}
			return nil
		})
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy_test

import (
	"errors"
	"slices"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/api/v1alpha1"
)

const (
	robotName = "system:serviceaccount:tenant-system:robot"
	robotUser = "berth:host:serviceaccount:tenant-system:robot"
)

func listConfigMaps(t *testing.T, c kubernetes.Interface) error {
	t.Helper()
	_, err := c.CoreV1().ConfigMaps("web").List(t.Context(), metav1.ListOptions{})
	return err
}

// O9: a ServiceAccount of the host has the rights of an owner for as long as it is one.
func TestServiceAccountsOfTheHostAreOwners(t *testing.T) {
	state := capsule()
	state.Access.OwnerScope.Groups = append(state.Access.OwnerScope.Groups, v1alpha1.HostServiceAccountsGroup)
	state.Access.Owners = append(state.Access.Owners, v1alpha1.Owner{Kind: v1alpha1.HostServiceAccountKind, Name: robotName})
	e := startEnv(t, state)
	robot := e.proven(robotName)
	if err := createNamespace(t, robot, "web"); err != nil {
		t.Fatal(err)
	}
	if _, err := robot.CoreV1().ConfigMaps("web").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "c"}}, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
	if can := canI(t, robot, "get", "namespaces", ""); can != "no" {
		t.Errorf("it may read all namespaces: %s", can)
	}
	eventually(t, func() error {
		bindings, err := e.admin().RbacV1().RoleBindings("web").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(bindings.Items, func(b rbacv1.RoleBinding) bool {
			return slices.Contains(b.Subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: robotUser})
		}) {
			return errors.New("no role binding shows its rights")
		}
		return nil
	})
	if err := listConfigMaps(t, e.proven("system:serviceaccount:tenant-system:other")); !apierrors.IsUnauthorized(err) {
		t.Errorf("another one: %v", err)
	}

	lost := watchConfigMaps(t, robot)
	next := *state
	next.Access.Owners = state.Access.Owners[:1]
	e.source.Set(&next)
	if err := listConfigMaps(t, robot); !apierrors.IsUnauthorized(err) {
		t.Errorf("a former owner: %v", err)
	}
	ended(t, "a ServiceAccount of the host", lost)
	e.source.Set(state)
	if err := listConfigMaps(t, robot); err != nil {
		t.Errorf("an owner again: %v", err)
	}
	lost = watchConfigMaps(t, robot)
	next = *state
	next.Access.OwnerScope.Groups = []string{v1alpha1.OwnersGroup}
	e.source.Set(&next)
	if err := listConfigMaps(t, robot); !apierrors.IsUnauthorized(err) {
		t.Errorf("an owner outside of the scope: %v", err)
	}
	ended(t, "an owner outside of the scope", lost)
}

// O9: nobody else takes the rights of a ServiceAccount of the host.
func TestHostileTwinsOfServiceAccountsOfTheHost(t *testing.T) {
	state := capsule()
	state.Access.OwnerScope = v1alpha1.OwnerScope{}
	state.Access.Owners = append(state.Access.Owners, v1alpha1.Owner{Kind: v1alpha1.HostServiceAccountKind, Name: robotName})
	e := startEnv(t, state)
	alice := e.user("alice")
	for _, namespace := range []string{"web", "tenant-system"} { // an owner may create the latter, too
		if err := createNamespace(t, alice, namespace); err != nil {
			t.Fatal(err)
		}
	}
	accounts := alice.CoreV1().ServiceAccounts("tenant-system")
	if _, err := accounts.Create(t.Context(), &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	with := func(audiences ...string) *kubernetes.Clientset {
		request, err := accounts.CreateToken(t.Context(), "robot", &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: audiences}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return client(t, &rest.Config{Host: e.url, QPS: -1, BearerToken: request.Status.Token, TLSClientConfig: rest.TLSClientConfig{CAData: e.ca}})
	}
	if err := listConfigMaps(t, with()); !apierrors.IsForbidden(err) {
		t.Errorf("a ServiceAccount of the space of the same name: %v", err)
	}
	if err := listConfigMaps(t, with(v1alpha1.TokenAudience)); !apierrors.IsUnauthorized(err) {
		t.Errorf("its token for Berth: %v", err)
	}
	for name, c := range map[string]*kubernetes.Clientset{
		"its user in a certificate":     e.user(robotUser),
		"its group in a certificate":    e.user("eve", v1alpha1.HostServiceAccountsGroup),
		"a group of it beside an owner": e.user("alice", v1alpha1.HostServiceAccountsGroup+":tenant-system"),
		"a name that can't be":          e.proven("alice"),
	} {
		if err := listConfigMaps(t, c); !apierrors.IsUnauthorized(err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	posing := e.by(e.clients().Client("alice", nil))
	for _, as := range []rest.ImpersonationConfig{{UserName: robotUser}, {UserName: "alice", Groups: []string{v1alpha1.HostServiceAccountsGroup}}} {
		posing.Impersonate = as
		if err := listConfigMaps(t, client(t, posing)); !apierrors.IsForbidden(err) {
			t.Errorf("an owner of namespaces who poses as %v: %v", as, err)
		}
	}
	if err := listConfigMaps(t, e.as(robotUser)); err != nil {
		t.Errorf("an admin who poses as it: %v", err)
	}
}

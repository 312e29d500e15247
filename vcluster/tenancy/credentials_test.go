// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy_test

import (
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/vcluster"
	"github.com/berth-dev/berth/vcluster/pki"
)

// owner returns a client with a certificate that is issued to an owner.
func (e *env) owner(kind v1alpha1.SubjectKind, name, user string, groups ...string) *kubernetes.Clientset {
	e.t.Helper()
	kubeconfig, err := vcluster.OwnerKubeconfig(e.config, pki.Owner{Kind: string(kind), Name: name}, time.Hour, user, groups)
	if err != nil {
		e.t.Fatal(err)
	}
	c, err := clientcmd.RESTConfigFromKubeConfig(kubeconfig)
	if err != nil {
		e.t.Fatal(err)
	}
	c.Host, c.CAData, c.QPS = e.url, e.ca, -1
	return client(e.t, c)
}

func watchConfigMaps(t *testing.T, c kubernetes.Interface) watch.Interface {
	t.Helper()
	w, err := c.CoreV1().ConfigMaps("web").Watch(t.Context(), metav1.ListOptions{TimeoutSeconds: ptr.To[int64](600)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

// ended returns when a watch has ended, and fails if that takes long.
func ended(t *testing.T, who string, w watch.Interface) {
	t.Helper()
	timeout := time.After(5 * time.Second)
	for {
		select {
		case _, open := <-w.ResultChan():
			if !open {
				return
			}
		case <-timeout:
			t.Fatalf("the watch of %s goes on", who)
		}
	}
}

// X2: what was issued to an owner is worth nothing from the moment on that the owner is removed, and its watches end.
func TestCredentialsOfOwnersEndWithTheOwner(t *testing.T) {
	state := capsule()
	state.Access.OwnerProfile = v1alpha1.SpaceAdmin
	state.Access.Owners = append(state.Access.Owners, v1alpha1.Owner{Kind: v1alpha1.GroupKind, Name: "team"}, v1alpha1.Owner{Kind: v1alpha1.UserKind, Name: "robin"})
	e := startEnv(t, state)
	alice, bob := e.owner(v1alpha1.UserKind, "alice", "alice", v1alpha1.OwnersGroup), e.owner(v1alpha1.GroupKind, "team", "bob", "team", v1alpha1.OwnersGroup)
	robin := e.user("robin", v1alpha1.OwnersGroup) // by another credential
	if err := createNamespace(t, alice, "web"); err != nil {
		t.Fatal(err)
	}
	watches := map[string]watch.Interface{"alice": watchConfigMaps(t, alice), "robin": watchConfigMaps(t, robin)}
	stays := watchConfigMaps(t, bob)
	if _, err := e.owner(v1alpha1.UserKind, "mallory", "alice", v1alpha1.OwnersGroup).CoreV1().ConfigMaps("web").List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("a certificate of an owner who never was: %v", err)
	}
	next := *state
	next.Access.Owners = state.Access.Owners[1:2]
	e.source.Set(&next)
	if _, err := alice.CoreV1().ConfigMaps("web").List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("a former owner: %v", err)
	}
	if _, err := robin.CoreV1().ConfigMaps("web").List(t.Context(), metav1.ListOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("a former owner with another credential: %v", err)
	}
	for who, w := range watches {
		ended(t, who, w)
	}
	if err := createNamespace(t, bob, "more"); err != nil {
		t.Errorf("another owner: %v", err)
	}
	select {
	case event, open := <-stays.ResultChan():
		if !open {
			t.Errorf("the watch of another owner ended: %v", event)
		}
	default:
	}
	// Also one who comes back has what was issued, and one who went while the space slept has not.
	e.source.Set(state)
	if _, err := alice.CoreV1().ConfigMaps("web").List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Errorf("who is an owner again: %v", err)
	}
	e.sleepAndWake(func() { e.source.Set(&next) })
	if _, err := e.owner(v1alpha1.UserKind, "alice", "alice", v1alpha1.OwnersGroup).CoreV1().ConfigMaps("web").List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("a former owner after a sleep: %v", err)
	}
}

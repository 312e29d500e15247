// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/vcluster/pki"
)

func startHost(t *testing.T) client.Client {
	t.Helper()
	return clientOf(t, startCluster(t))
}

func clientOf(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	c, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func startCluster(t *testing.T) *rest.Config {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	ca, err := pki.OpenCA(t.TempDir(), "test")
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := host.Start(ctx, host.Options{Dir: t.TempDir(), Endpoint: "https://127.0.0.1:1", ServingCA: ca.PEM(), Nodes: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return cluster.Config()
}

// Q1, Q3, S7: Apply is repeatable, keeps what admins chose, repairs what was
// changed, and never takes over a namespace that is somebody else's.
func TestIsolationIsAppliedToARealHost(t *testing.T) {
	c, ctx := startHost(t), t.Context()
	space := translate.Space{Name: "demo"}
	apply := func(t *testing.T) {
		t.Helper()
		if err := isolation.Apply(ctx, c, space, nil); err != nil {
			t.Fatal(err)
		}
	}
	apply(t)
	quota := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: space.HostNamespace(), Name: "berth"}}
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: space.HostNamespace()}}
	get := func(t *testing.T, o client.Object) {
		t.Helper()
		if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			t.Fatal(err)
		}
	}

	t.Run("an admin's quota stays", func(t *testing.T) {
		get(t, quota)
		quota.Spec.Hard[corev1.ResourcePods] = resource.MustParse("7")
		delete(quota.Spec.Hard, corev1.ResourceConfigMaps) // as if Berth had not known the kind then
		quota.ResourceVersion = ""                         // its status is being written
		if err := c.Update(ctx, quota); err != nil {
			t.Fatal(err)
		}
		apply(t)
		get(t, quota)
		if pods := quota.Spec.Hard[corev1.ResourcePods]; pods.Value() != 7 {
			t.Errorf("pods are %s, want the admin's 7", pods.String())
		}
		if _, bounded := quota.Spec.Hard[corev1.ResourceConfigMaps]; !bounded {
			t.Error("a kind that had no bound has none still")
		}
	})

	t.Run("a weakened label is set again, and other labels stay", func(t *testing.T) {
		get(t, ns)
		ns.Labels["pod-security.kubernetes.io/enforce"] = "privileged"
		ns.Labels["team"] = "a"
		if err := c.Update(ctx, ns); err != nil {
			t.Fatal(err)
		}
		apply(t)
		get(t, ns)
		if ns.Labels["pod-security.kubernetes.io/enforce"] != "baseline" || ns.Labels["team"] != "a" {
			t.Errorf("labels are %v", ns.Labels)
		}
	})

	t.Run("a foreign namespace is refused and left as it is", func(t *testing.T) {
		foreign := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "berth-theirs"}}
		if err := c.Create(ctx, foreign); err != nil {
			t.Fatal(err)
		}
		if err := isolation.Apply(ctx, c, translate.Space{Name: "theirs"}, nil); !errors.Is(err, isolation.ErrTaken) {
			t.Errorf("got error %v, want ErrTaken", err)
		}
		after := foreign.DeepCopy()
		get(t, after)
		if after.Labels[translate.LabelSpace] != "" {
			t.Error("the namespace was taken over")
		}
	})
	t.Run("a namespace of another platform is refused and left as it is", func(t *testing.T) {
		shared := translate.Space{Name: "shared", Platform: "first"}
		if err := isolation.Apply(ctx, c, shared, nil); err != nil {
			t.Fatal(err)
		}
		for _, platform := range []string{"second", ""} {
			other := translate.Space{Name: "shared", Platform: platform}
			if err := isolation.Apply(ctx, c, other, nil); !errors.Is(err, isolation.ErrTaken) || !strings.Contains(err.Error(), "the platform first") {
				t.Errorf("the platform %q gets the error %v, want ErrTaken", platform, err)
			}
		}
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shared.HostNamespace()}}
		if get(t, ns); ns.Labels[translate.LabelPlatform] != "first" {
			t.Errorf("labels are %v", ns.Labels)
		}
	})

	t.Run("the namespace of an older Berth gets the label of the platform", func(t *testing.T) {
		if err := isolation.Apply(ctx, c, translate.Space{Name: "demo", Platform: "first"}, nil); err != nil {
			t.Fatal(err)
		}
		if get(t, ns); ns.Labels[translate.LabelPlatform] != "first" {
			t.Errorf("labels are %v", ns.Labels)
		}
	})

	t.Run("with a role of the host's for classes, a binding is written and no role", func(t *testing.T) {
		syncOptions, err := resources.Parse([]string{"ownpriorityclasses=5"})
		if err != nil {
			t.Fatal(err)
		}
		space, binding := translate.Space{Name: "bound", Platform: "first"}, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "berth-bound"}}
		for _, clusterRole := range []string{"", "spaces", "others"} { // as if `berth up` had made it, then one release, then another
			if err := isolation.Apply(ctx, c, space, nil, isolation.BoundTo(clusterRole), isolation.Syncing(syncOptions)); err != nil {
				t.Fatal(err)
			}
			want := "berth-bound"
			if clusterRole != "" {
				want = clusterRole + isolation.ClassesSuffix
			}
			get(t, binding)
			if binding.RoleRef.Name != want || len(binding.Subjects) != 1 || binding.Subjects[0].Namespace != "berth-bound" || binding.Labels[translate.LabelPlatform] != "first" {
				t.Errorf("BoundTo(%q): %v has the role %s and the labels %v", clusterRole, binding.Subjects, binding.RoleRef.Name, binding.Labels)
			}
			if err := c.Get(ctx, client.ObjectKey{Name: "spaces" + isolation.ClassesSuffix}, &rbacv1.ClusterRole{}); !apierrors.IsNotFound(err) {
				t.Errorf("a role is written: %v", err)
			}
		}
	})
}

// Q1, S7: the account of a space gets no right before the limits are there, also when they change together: what can't be written keeps back
// what comes after it.
func TestLimitsAreThereBeforeRights(t *testing.T) {
	host, err := client.NewWithWatch(startCluster(t), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	space := translate.Space{Name: "ordered"}
	// apply returns the kinds of the objects that were written, in order, if those of a kind can't be.
	apply := func(t *testing.T, refused string, wider ...isolation.Option) (kinds []string) {
		t.Helper()
		var mu sync.Mutex
		recorded := interceptor.NewClient(host, interceptor.Funcs{
			Patch: func(ctx context.Context, to client.WithWatch, o client.Object, patch client.Patch, options ...client.PatchOption) error {
				kind := o.GetObjectKind().GroupVersionKind().Kind
				if kind == refused {
					return errors.New("it can't be written")
				}
				err := to.Patch(ctx, o, patch, options...)
				mu.Lock()
				defer mu.Unlock()
				kinds = append(kinds, kind)
				return err
			},
		})
		if err := isolation.Apply(t.Context(), recorded, space, nil, wider...); (err != nil) != (refused != "") {
			t.Fatal(err)
		}
		return kinds
	}
	rights := []string{"Role", "RoleBinding"}
	check := func(t *testing.T, kinds []string) {
		t.Helper()
		if kinds[0] != "Namespace" || !slices.Equal(kinds[len(kinds)-2:], rights) || len(kinds) < 8 {
			t.Errorf("these were written, in this order: %s", kinds)
		}
	}
	check(t, apply(t, ""))
	wider := isolation.AlsoSyncing(rbacv1.PolicyRule{APIGroups: []string{"example.com"}, Resources: []string{"things"}, Verbs: []string{"create"}})
	for _, limit := range []string{"LimitRange", "NetworkPolicy"} {
		if kinds := apply(t, limit, wider); slices.ContainsFunc(kinds, func(kind string) bool { return slices.Contains(rights, kind) }) {
			t.Errorf("without a %s, these are written: %s", limit, kinds)
		}
	}
	check(t, apply(t, "", wider))
}

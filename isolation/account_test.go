// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation_test

import (
	"context"
	"maps"
	"slices"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/translate"
)

// Q1, Q3: what stands is left as it stands; a given quota is set, whoever
// changed it; an object that was deleted is there again.
func TestApplyingTwiceChangesNothing(t *testing.T) {
	c, ctx := startHost(t), t.Context()
	space := translate.Space{Name: "again"}
	apply := func(t *testing.T, quota corev1.ResourceList) map[string]string {
		t.Helper()
		if err := isolation.Apply(ctx, c, space, quota); err != nil {
			t.Fatal(err)
		}
		versions := map[string]string{}
		for _, o := range isolation.Objects(space, quota) {
			if err := c.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
				t.Fatal(err)
			}
			// The quota's status is counted meanwhile.
			if _, counted := o.(*corev1.ResourceQuota); !counted {
				versions[o.GetObjectKind().GroupVersionKind().Kind+" "+o.GetName()] = o.GetResourceVersion()
			}
		}
		return versions
	}
	pods := func(t *testing.T) int64 {
		t.Helper()
		quota := &corev1.ResourceQuota{}
		if err := c.Get(ctx, client.ObjectKey{Namespace: space.HostNamespace(), Name: "berth"}, quota); err != nil {
			t.Fatal(err)
		}
		hard := quota.Spec.Hard[corev1.ResourcePods]
		return hard.Value()
	}

	first := apply(t, nil)
	if second := apply(t, nil); !maps.Equal(first, second) {
		t.Errorf("versions were %v and are %v", first, second)
	}
	for _, step := range []struct {
		reason string
		quota  corev1.ResourceList
		want   int64
	}{
		{"a given quota replaces the default", corev1.ResourceList{corev1.ResourcePods: resource.MustParse("3")}, 3},
		{"none given leaves what there is", nil, 3},
		{"another is another", corev1.ResourceList{corev1.ResourcePods: resource.MustParse("5")}, 5},
	} {
		apply(t, step.quota)
		if got := pods(t); got != step.want {
			t.Errorf("%s: %d pods are allowed, want %d", step.reason, got, step.want)
		}
	}

	at := metav1.ObjectMeta{Namespace: space.HostNamespace(), Name: "berth"}
	for _, o := range []client.Object{&networkingv1.NetworkPolicy{ObjectMeta: at}, &corev1.LimitRange{ObjectMeta: at}, &corev1.ResourceQuota{ObjectMeta: at}} {
		if err := c.Delete(ctx, o); err != nil {
			t.Fatal(err)
		}
	}
	apply(t, nil)
	if got := pods(t); got != 200 {
		t.Errorf("%d pods are allowed, want the default", got)
	}
}

// T2, Q3: the host's authorizer itself lets the account do its work in its own
// namespace, and nothing that would lead out of it or weaken its isolation.
func TestTheHostLetsTheAccountDoNoMoreThanSync(t *testing.T) {
	c := startHost(t)
	for _, name := range []string{"mine", "theirs"} {
		if err := isolation.Apply(t.Context(), c, translate.Space{Name: name}, nil); err != nil {
			t.Fatal(err)
		}
	}
	if err := isolation.Apply(t.Context(), c, translate.Space{Name: "more"}, nil, isolation.Syncing(everyResource(t))); err != nil {
		t.Fatal(err)
	}
	allowed := func(t *testing.T, whose, verb, group, resource, namespace string) bool {
		t.Helper()
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:   "system:serviceaccount:" + whose + ":" + syncer.ServiceAccount,
			Groups: []string{"system:serviceaccounts", "system:serviceaccounts:" + whose, "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{
				Verb: verb, Group: group, Resource: resource, Namespace: namespace, Name: "x",
			},
		}}
		if err := c.Create(t.Context(), review); err != nil {
			t.Fatal(err)
		}
		return review.Status.Allowed
	}
	may := func(t *testing.T, verb, group, resource, namespace string) bool {
		t.Helper()
		return allowed(t, "berth-mine", verb, group, resource, namespace)
	}
	// The authorizer learns of roles from a watch.
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
		return may(t, "create", "", "pods", "berth-mine") && allowed(t, "berth-more", "create", "", "pods", "berth-more"), nil
	})
	if err != nil {
		t.Fatal("the account may not create pods")
	}
	work := []string{"get", "create", "update", "delete"}
	for _, resource := range []string{"pods", "services", "configmaps", "secrets", "persistentvolumeclaims"} {
		for _, verb := range work {
			if !may(t, verb, "", resource, "berth-mine") {
				t.Errorf("may not %s %s", verb, resource)
			}
		}
		for _, elsewhere := range []string{"berth-theirs", "kube-system", "default", ""} {
			for _, verb := range slices.Concat(work, []string{"list", "watch", "patch"}) {
				if may(t, verb, "", resource, elsewhere) {
					t.Errorf("may %s %s in %q", verb, resource, elsewhere)
				}
			}
		}
	}
	for subresource, verb := range map[string]string{"pods/ephemeralcontainers": "update", "pods/resize": "update", "pods/status": "patch"} {
		if !may(t, verb, "", subresource, "berth-mine") {
			t.Errorf("may not %s %s", verb, subresource)
		}
		if may(t, verb, "", subresource, "berth-theirs") {
			t.Errorf("may %s %s of another space", verb, subresource)
		}
	}
	for resource, group := range map[string]string{"ingresses": "networking.k8s.io", "networkpolicies": "networking.k8s.io"} {
		for _, verb := range work {
			if !may(t, verb, group, resource, "berth-mine") || may(t, verb, group, resource, "berth-theirs") {
				t.Errorf("may %s %s elsewhere, or not in its own namespace", verb, resource)
			}
		}
	}
	// What is off by default takes no right until it is on.
	for resource, group := range map[string]string{"poddisruptionbudgets": "policy", "serviceaccounts": "", "volumesnapshots": "snapshot.storage.k8s.io", "resourceclaims": "resource.k8s.io"} {
		for _, verb := range work {
			if may(t, verb, group, resource, "berth-mine") {
				t.Errorf("may %s %s, which are not synced", verb, resource)
			}
			if !allowed(t, "berth-more", verb, group, resource, "berth-more") || allowed(t, "berth-more", verb, group, resource, "berth-mine") {
				t.Errorf("may %s %s elsewhere, or not in its own namespace", verb, resource)
			}
		}
	}
	for _, denied := range []struct{ reason, verb, group, resource, namespace string }{
		{"its isolation", "update", "", "resourcequotas", "berth-mine"},
		{"its isolation", "delete", "", "limitranges", "berth-mine"},
		{"others' isolation", "delete", "networking.k8s.io", "networkpolicies", "berth-theirs"},
		{"its isolation", "update", "", "namespaces", "berth-mine"},
		{"its rights", "update", "rbac.authorization.k8s.io", "roles", "berth-mine"},
		{"its rights", "create", "rbac.authorization.k8s.io", "rolebindings", "berth-mine"},
		{"another's rights", "impersonate", "", "serviceaccounts", "berth-mine"},
		{"another's rights", "create", "", "serviceaccounts/token", "berth-mine"},
		{"the scheduler's", "create", "", "pods/binding", "berth-mine"},
		{"the kubelet's", "update", "", "pods/status", "berth-mine"},
		{"what others run", "create", "", "pods/exec", "berth-theirs"},
		{"what others run", "get", "", "pods/log", "berth-theirs"},
		{"what others run", "create", "", "pods/portforward", "kube-system"},
		{"what the host's network leads to", "get", "", "pods/proxy", "berth-mine"},
		{"what the host's network leads to", "create", "", "services/proxy", "berth-mine"},
		{"kubelets", "get", "", "nodes/proxy", ""},
		{"what it need not know", "list", "", "secrets", "berth-mine"},
		{"nodes", "get", "", "nodes", ""},
		{"volumes", "get", "", "persistentvolumes", ""},
		{"classes", "create", "storage.k8s.io", "storageclasses", ""},
	} {
		if may(t, denied.verb, denied.group, denied.resource, denied.namespace) {
			t.Errorf("%s: may %s %s", denied.reason, denied.verb, denied.resource)
		}
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// T9: the process of a dedicated space may watch all that it watches, whatever is switched off: it doesn't start otherwise.
func TestADedicatedSpaceMayWatchWhatItWatches(t *testing.T) {
	for _, options := range [][]string{
		nil,
		{"storageclasses=off", "ownstorageclasses=ebs.csi.aws.com"},
		{"priorityclasses=off", "ownpriorityclasses=1000"},
		{"storageclasses=off", "ingressclasses=off", "runtimeclasses=off", "priorityclasses=off", "ingresses=off", "networkpolicies=off"},
		{"nodes=all", "gateways=on", "ingresses=off", "httproutes=on", "volumesnapshots=on", "poddisruptionbudgets=on", "serviceaccounts=on", "resourceclaims=on"},
		{"nodes=all", "ownstorageclasses=ebs.csi.aws.com", "ownpriorityclasses=1000"},
	} {
		parsed, err := resources.Parse(options)
		if err != nil {
			t.Fatal(err)
		}
		host, err := hostcache.NewHost(&rest.Config{Host: "https://host"}, hostcache.Options{Sync: parsed, Only: "switched"})
		if err != nil {
			t.Fatal(err)
		}
		for name := range host.Routers {
			rules, of := isolation.ReadRules(parsed), schema.GroupResource{Resource: hostcache.Quotas}
			if name == hostcache.Quotas {
				rules = isolation.WatchRules(parsed)
			} else {
				r := resources.Of(name)
				of = r.GVR().GroupResource()
				if !r.InCluster && r.Exposure == nil {
					rules = isolation.WatchRules(parsed)
				}
			}
			for _, verb := range []string{"list", "watch"} {
				if !slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool {
					return slices.Contains(rule.APIGroups, of.Group) && slices.Contains(rule.Resources, of.Resource) && slices.Contains(rule.Verbs, verb) && len(rule.ResourceNames) == 0
				}) {
					t.Errorf("with %v, it may not %s %s for %s", options, verb, of, name)
				}
			}
		}
	}
}

// S1, S3: by the host's own authorizer, the account of a space loses the rights on what is switched off, and gets them back
// when it is switched on again. It may still delete what is left, and that of a dedicated space may list it.
func TestRightsFollowWhatIsSwitchedOff(t *testing.T) {
	c := startHost(t)
	parse := func(options ...string) resources.SyncOptions {
		t.Helper()
		parsed, err := resources.Parse(options)
		if err != nil {
			t.Fatal(err)
		}
		return parsed
	}
	const networking = "networking.k8s.io"
	allowed := func(ctx context.Context, verb, group, resource, namespace string) bool {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User:               "system:serviceaccount:berth-switched:" + syncer.ServiceAccount,
			Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:berth-switched", "system:authenticated"},
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: group, Resource: resource, Namespace: namespace, Name: "x"},
		}}
		if err := c.Create(ctx, review); err != nil {
			t.Error(err)
		}
		return review.Status.Allowed
	}
	type right struct{ verb, group, resource, namespace string }
	inSpace := func(verb, group, resource string) right { return right{verb, group, resource, "berth-switched"} }
	of := []right{
		inSpace("create", networking, "ingresses"), inSpace("update", networking, "ingresses"), inSpace("create", networking, "networkpolicies"),
		inSpace("create", "", "configmaps"), inSpace("watch", networking, "networkpolicies"), inSpace("watch", "", "configmaps"),
		{"list", networking, "ingresses", ""}, {"watch", networking, "ingressclasses", ""}, {"list", "storage.k8s.io", "storageclasses", ""},
		{"list", "", "persistentvolumes", ""}, {"list", "scheduling.k8s.io", "priorityclasses", ""}, {"list", "node.k8s.io", "runtimeclasses", ""},
	}
	always := []right{
		inSpace("delete", networking, "ingresses"), inSpace("delete", networking, "networkpolicies"), inSpace("delete", "", "configmaps"),
		inSpace("list", networking, "networkpolicies"), inSpace("list", "", "configmaps"), inSpace("create", "", "pods"), inSpace("create", "", "secrets"), inSpace("watch", "", "secrets"),
	}
	off := parse("ingresses=off", "networkpolicies=off", "configmaps=off", "ingressclasses=off", "storageclasses=off", "priorityclasses=off", "runtimeclasses=off", "persistentvolumes=off")
	for i, options := range []resources.SyncOptions{parse(), off, parse()} {
		on := i != 1
		if err := isolation.Apply(t.Context(), c, translate.Space{Name: "switched"}, nil, isolation.Syncing(options), isolation.Dedicated(options)); err != nil {
			t.Fatal(err)
		}
		var wrong []string
		// The authorizer learns of roles from a watch.
		err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
			wrong = nil
			for _, r := range slices.Concat(of, always) {
				if want := on || slices.Contains(always, r); allowed(ctx, r.verb, r.group, r.resource, r.namespace) != want {
					wrong = append(wrong, fmt.Sprintf("%s %s in %q: %t", r.verb, r.resource, r.namespace, !want))
				}
			}
			return len(wrong) == 0, nil
		})
		if err != nil {
			t.Errorf("step %d, with %v: %v", i, options.Args(), wrong)
		}
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostpolicy_test

import (
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/internal/testfields"
	"github.com/berth-dev/berth/isolation/hostpolicy"
)

// M4 (finding S14): of every field of every resource that is synced, and of every
// type below it, a policy refuses what Berth never writes. What an API server would
// find wrong with the value plays no part here; TestHostileFieldsAreRefusedByTheHost
// of package isolation asks one.
func TestHostileFieldsAreRefusedByThePolicies(t *testing.T) {
	if unknown := testfields.Writes().Check(); len(unknown) > 0 {
		t.Errorf("the table is about fields that their types don't have: %v", unknown)
	}
	counted := map[string]string{hostpolicy.AnnotationPodResources: "class:offered.example"}
	accounts, pods := newEvaluator(t, hostpolicy.Accounts(), counted), newEvaluator(t, hostpolicy.Pods(), counted)
	sites := 0
	for _, r := range testfields.Resources() {
		policy := accounts
		switch {
		case r.Resource == "pods":
			policy = pods
		case r.InCluster:
			continue
		}
		sites += len(r.Sites)
		t.Run(r.Resource, func(t *testing.T) {
			if message, _ := policy.refuses(write{resource: r.GroupVersionResource, kind: r.Kind, object: r.Made()}); message != "" {
				t.Fatalf("what Berth makes is refused: %s", message)
			}
			for _, s := range r.Sites {
				check(t, policy, s, func(o client.Object) write { return write{resource: r.GroupVersionResource, kind: r.Kind, object: o} }, r.Made)
			}
		})
		if r.Resource != "pods" {
			continue
		}
		t.Run("pods/ephemeralcontainers", func(t *testing.T) {
			for _, s := range testfields.Ephemeral() {
				check(t, policy, s, func(o client.Object) write {
					return write{resource: r.GroupVersionResource, kind: r.Kind, subresource: "ephemeralcontainers", object: o, old: r.Made()}
				}, r.Made)
			}
		})
	}
	if sites < 250 {
		t.Errorf("only %d fields were looked at", sites)
	}
}

func check(t *testing.T, policy *evaluator, s testfields.Site, request func(client.Object) write, made func() client.Object) {
	t.Helper()
	without, with := made(), made()
	s.Without(without)
	if message, _ := policy.refuses(request(without)); message != "" {
		t.Errorf("%s: refused without it: %s", s, message)
	}
	s.Set(with)
	if message, _ := policy.refuses(request(with)); message == "" {
		t.Errorf("%s: what Berth never writes is let through", s)
	} else if strings.Contains(message, "no such key") || strings.Contains(message, "no such overload") {
		t.Errorf("%s: %s", s, message)
	}
}

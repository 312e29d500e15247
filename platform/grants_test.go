// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"fmt"
	"sync"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/platform/specs"
	"github.com/berth-dev/berth/platform/systemroles"
)

// Z6: of two changes at the same time, the later one holds on an embedded host, so that a role that was revoked doesn't stay.
func TestTheLatestGrantsHoldOnTheHost(t *testing.T) {
	all, err := specs.New(&specs.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var c Config
	c.Specs = all
	p := New(c)
	roles := systemroles.New(p.grant)
	p.roles.Store(roles)
	for i := range 3000 {
		var both sync.WaitGroup
		for range 16 {
			both.Go(p.grant) // the policy has changed
		}
		both.Go(func() {
			role := &v1alpha1.SystemRole{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("r", i%200)}, Spec: v1alpha1.SystemRoleSpec{ScopeType: v1alpha1.ScopeCluster}}
			role.Spec.Rules = []rbacv1.PolicyRule{{Verbs: []string{fmt.Sprint("v", i)}}}
			if err := roles.Update(role); err != nil {
				t.Error(err)
			}
		})
		both.Wait()
		if !access.SameGrants(p.hostGrants.Get().Granted, roles.Granted(gateway.SystemSpace, v1alpha1.SystemTenant)) {
			t.Fatalf("after change %d, what was granted before it holds", i)
		}
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-dev/berth/bounds"
)

// M4: a host name too many is refused, and what the host serves already it serves on: also when the space wakes, whatever
// has come meanwhile.
func TestHostileHostNameTooManyLeavesWhatIsServed(t *testing.T) {
	t.Parallel()
	env := newEnv(t, "live-hosts")
	env.limits = bounds.NewAccount(bounds.Limits{bounds.IngressHostnames: 2})
	env.ingressClass(t, "live-hosts", importLabel())
	env.begin(nil)
	ours, theirs := env.virtual.NetworkingV1().Ingresses("default"), env.host.NetworkingV1().Ingresses(env.space.HostNamespace())
	served := map[string]types.UID{}
	for _, name := range []string{"x", "y"} {
		must(t, ours.Create, newIngress(name, "live-hosts", name+".live-hosts.example"))
		served[name] = awaited(t, "see it on the host", theirs.Get, env.hostName(name), nil).UID
	}
	serves := func() {
		t.Helper()
		for name, uid := range served {
			host, err := theirs.Get(t.Context(), env.hostName(name), metav1.GetOptions{})
			if err != nil || host.UID != uid || host.DeletionTimestamp != nil || len(host.Spec.Rules) != 1 {
				t.Errorf("%s is not what it was: %v, %v", name, host, err)
			}
		}
	}
	patch := `[{"op":"add","path":"/spec/rules/-","value":{"host":"more.live-hosts.example"}}]`
	if _, err := ours.Patch(t.Context(), "x", types.JSONPatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	env.awaitWarning(t, "Ingress", "x", "ingress-hostnames", "spec.rules")
	env.idle(t)
	serves()
	asleep := env.sleep()
	asleep.stop()
	for i := range 20 {
		must(t, ours.Create, newIngress(fmt.Sprintf("a-%d", i), "live-hosts", fmt.Sprintf("a-%d.live-hosts.example", i)))
	}
	env.begin(nil)
	for i := range 20 {
		env.awaitWarning(t, "Ingress", fmt.Sprintf("a-%d", i), "ingress-hostnames")
	}
	env.idle(t)
	serves()
}

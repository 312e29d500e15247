// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/translate"
)

// S1: what is disabled, or is by default, stays in the space.
func TestWhatIsSwitchedOffStaysInTheSpace(t *testing.T) {
	t.Parallel()
	env := synced(t, "off", "networkpolicies=off", "services=off")
	must(t, env.virtual.NetworkingV1().NetworkPolicies("default").Create, &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: "off"}})
	must(t, env.virtual.PolicyV1().PodDisruptionBudgets("default").Create, &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "off"}, Spec: policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{}},
	})
	must(t, env.virtual.CoreV1().Pods("default").Create, newPod("web"))
	pod := awaited(t, "see a pod, which came after them", env.host.CoreV1().Pods(env.space.HostNamespace()).Get, env.hostName("web"), nil)
	for _, key := range []string{translate.LabelPolicedIngress, translate.LabelBudget} {
		if _, ok := pod.Labels[key]; ok {
			t.Errorf("the pod is marked %s", key)
		}
	}
	if pod.Spec.ServiceAccountName != "default" {
		t.Errorf("the pod runs as %s", pod.Spec.ServiceAccountName)
	}
	testhost.Eventually(t, "be idle", func(context.Context) error {
		if !env.run.syncer.Idle() {
			return errors.New("the syncer is at work")
		}
		return nil
	})
	for what, get := range map[string]func() error{
		"policy": func() error {
			return gone(env.host.NetworkingV1().NetworkPolicies(env.space.HostNamespace()).Get(t.Context(), env.hostName("off"), metav1.GetOptions{}))
		},
		"budget": func() error {
			return gone(env.host.PolicyV1().PodDisruptionBudgets(env.space.HostNamespace()).Get(t.Context(), env.hostName("off"), metav1.GetOptions{}))
		},
	} {
		if err := get(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// S1: with "all", config maps and secrets go down whether a pod refers to them
// or not; what went while no syncer ran is gone from the host, too.
func TestAllConfigMapsGoDownIfTheSwitchSaysSo(t *testing.T) {
	t.Parallel()
	env := synced(t, "all", "configmaps=all", "secrets=all")
	maps, hostMaps := env.virtual.CoreV1().ConfigMaps("default"), env.host.CoreV1().ConfigMaps(env.space.HostNamespace())
	for _, name := range []string{"now", "later"} {
		must(t, maps.Create, newConfigMap(name))
		awaited(t, "see the config map", hostMaps.Get, env.hostName(name), nil)
	}
	must(t, env.virtual.CoreV1().Secrets("default").Create, newSecret("s"))
	awaited(t, "see the secret", env.host.CoreV1().Secrets(env.space.HostNamespace()).Get, env.hostName("s"), nil)
	if err := maps.Delete(t.Context(), "now", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitedGone(t, "see the config map gone", hostMaps.Get, env.hostName("now"))
	if err := env.kill(); err != nil {
		t.Fatal(err)
	}
	if err := maps.Delete(t.Context(), "later", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	env.begin(nil)
	awaitedGone(t, "see the other config map gone", hostMaps.Get, env.hostName("later"))
}

// S1: where it is enabled, pods run as accounts of their own, which hold no token.
func TestServiceAccountsAreIdentitiesOnly(t *testing.T) {
	t.Parallel()
	env := synced(t, "accounts", "serviceaccounts=on")
	must(t, env.virtual.CoreV1().ServiceAccounts("default").Create, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{
		Name: "builder", Annotations: map[string]string{"eks.amazonaws.com/role-arn": "the platform's"},
	}})
	pod := newPod("web")
	pod.Spec.ServiceAccountName = "builder"
	must(t, env.virtual.CoreV1().Pods("default").Create, pod)
	host := awaited(t, "see the pod", env.host.CoreV1().Pods(env.space.HostNamespace()).Get, env.hostName("web"), nil)
	if host.Spec.ServiceAccountName != env.hostName("builder") || ptr.Deref(host.Spec.AutomountServiceAccountToken, true) {
		t.Errorf("the pod runs as %s, and gets a token: %v", host.Spec.ServiceAccountName, host.Spec.AutomountServiceAccountToken)
	}
	for _, v := range host.Spec.Volumes {
		if strings.HasPrefix(v.Name, "kube-api-access") && v.Projected != nil {
			for _, source := range v.Projected.Sources {
				if source.ServiceAccountToken != nil {
					t.Errorf("the pod gets a token of the host's: %v", source)
				}
			}
		}
	}
	account, err := env.host.CoreV1().ServiceAccounts(env.space.HostNamespace()).Get(t.Context(), env.hostName("builder"), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if ptr.Deref(account.AutomountServiceAccountToken, true) || len(account.Secrets)+len(account.ImagePullSecrets) > 0 || account.Annotations["eks.amazonaws.com/role-arn"] != "" {
		t.Errorf("the account is more than a name: %v", account)
	}
}

// S7: a pod that runs keeps its account, and is synced on, when the space has it
// no more.
func TestAPodOutlivesItsServiceAccount(t *testing.T) {
	t.Parallel()
	env := synced(t, "outlives", "serviceaccounts=on")
	accounts, ours := env.virtual.CoreV1().ServiceAccounts("default"), env.virtual.CoreV1().Pods("default")
	must(t, accounts.Create, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "builder"}})
	pod := newPod("web")
	pod.Spec.ServiceAccountName = "builder"
	must(t, ours.Create, pod)
	theirs := env.host.CoreV1().Pods(env.space.HostNamespace())
	awaited(t, "see the pod", theirs.Get, env.hostName("web"), nil)
	if err := accounts.Delete(t.Context(), "builder", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitedGone(t, "see the account gone", env.host.CoreV1().ServiceAccounts(env.space.HostNamespace()).Get, env.hostName("builder"))
	if _, err := ours.Patch(t.Context(), "web", types.MergePatchType, []byte(`{"metadata":{"labels":{"late":"yes"}}}`), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	awaited(t, "see the label on the host", theirs.Get, env.hostName("web"), func(h *corev1.Pod) error {
		if h.Labels["late"] != "yes" || h.Spec.ServiceAccountName != env.hostName("builder") {
			return fmt.Errorf("labels are %v, the account is %s", h.Labels, h.Spec.ServiceAccountName)
		}
		return nil
	})
}

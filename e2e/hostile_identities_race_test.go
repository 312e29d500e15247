// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
)

// change is one of an object on the host. Versions of all objects of a host are in one order.
type change struct {
	version int
	name    string
	role    string
}

// changesUntil collects the changes of a watch until one of an object of the name last.
func changesUntil(t *testing.T, w watch.Interface, last string) (changes []change) {
	t.Helper()
	defer w.Stop()
	for {
		select {
		case e, open := <-w.ResultChan():
			if !open {
				t.Fatal("a watch of the host ended")
			}
			object := e.Object.(metav1.Object)
			c := change{version: must(strconv.Atoi(object.GetResourceVersion()))(t), name: object.GetName(), role: object.GetAnnotations()[roleKey]}
			if _, pod := object.(*corev1.Pod); !pod || e.Type == watch.Added {
				changes = append(changes, c)
			}
			if c.name == last {
				return changes
			}
		case <-t.Context().Done():
			t.Fatal(t.Context().Err())
		}
	}
}

// S1, M4: a tenant changes the annotation of its ServiceAccount right before and after it creates a pod. When a pod is created on the host,
// its account has no value that isn't allowed, and none from before the pod was created in the space.
func TestHostileRacesGiveNoOtherIdentity(t *testing.T) {
	t.Parallel()
	const pods = 12
	b, host := withIdentities(t, map[string]string{"solar": fmt.Sprintf(onlyRoles, "solar-*")})
	solar := b.space(t, "solar")
	byHand(t, solar.CoreV1().ServiceAccounts("default").Create, annotated("app"))
	annotate := func(value string) {
		t.Helper()
		patch := fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, roleKey, value)
		must(solar.CoreV1().ServiceAccounts("default").Patch(t.Context(), "app", types.MergePatchType, []byte(patch), metav1.PatchOptions{}))(t)
	}
	accountsWatch := must(host.CoreV1().ServiceAccounts("berth-solar").Watch(t.Context(), metav1.ListOptions{}))(t)
	podsWatch := must(host.CoreV1().Pods("berth-solar").Watch(t.Context(), metav1.ListOptions{}))(t)
	for i := range pods {
		annotate(fmt.Sprintf("%ssolar-%d", rolePrefix, i))
		byHand(t, solar.CoreV1().Pods("default").Create, newPod(fmt.Sprintf("web-%d", i), runningAs("app")))
		switch i % 3 {
		case 1:
			annotate(lunarRole)
		case 2: // the pod has the identity that its account has, and no other, without any wait
			solar.awaitRunning(t, "default", fmt.Sprintf("web-%d", i))
		}
	}
	for i := range pods { // those that wait run when the account is as the admin allows it
		solar.awaitRunning(t, "default", fmt.Sprintf("web-%d", i))
	}
	byHand(t, solar.CoreV1().ServiceAccounts("default").Create, annotated("end"))
	solar.run(t, "default", newPod("end", runningAs("end")))

	accounts, created := changesUntil(t, accountsWatch, "solar--default--end"), changesUntil(t, podsWatch, "solar--default--end")
	for _, a := range accounts {
		if a.role != "" && !strings.HasPrefix(a.role, rolePrefix+"solar-") {
			t.Errorf("version %d of the host account %s has the role %s", a.version, a.name, a.role)
		}
	}
	accounts = slices.DeleteFunc(accounts, func(a change) bool { return a.name != "solar--default--app" })
	slices.SortFunc(accounts, func(a, b change) int { return cmp.Compare(a.version, b.version) })
	seen := 0
	for _, p := range created {
		i, err := strconv.Atoi(strings.TrimPrefix(p.name, "solar--default--web-"))
		if err != nil {
			continue
		}
		seen++
		role := ""
		for _, a := range accounts {
			if a.version < p.version {
				role = a.role
			}
		}
		number, err := strconv.Atoi(strings.TrimPrefix(role, rolePrefix+"solar-"))
		switch {
		case role == "" && i%3 != 2: // the account may have lost its role after the syncer made the host account equal
		case err != nil || number < i || i%3 == 2 && number != i:
			t.Errorf("when web-%d was created on the host, its account had the role %q", i, role)
		}
	}
	if seen != pods {
		t.Errorf("%d pods were seen on the host, want %d", seen, pods)
	}
}

// Q2, M4: the host accounts of a tenant that makes many of them, each with an identity, are within the quota of the space, and the tenant is
// told why a pod waits.
func TestHostileManyAccountsAreWithinTheQuota(t *testing.T) {
	t.Parallel()
	const most = 9
	b, host := withIdentities(t, map[string]string{"solar": fmt.Sprintf(onlyRoles, "solar-*")})
	patchSpace(t, host, "solar", fmt.Sprintf("spec: {quota: {count/serviceaccounts: '%d'}}", most))
	eventually(t, func() error {
		for _, quota := range must(host.CoreV1().ResourceQuotas("berth-solar").List(t.Context(), metav1.ListOptions{}))(t).Items {
			if hard, ok := quota.Status.Hard["count/serviceaccounts"]; ok && hard.Value() == most {
				return nil
			}
		}
		return errors.New("no quota bounds the accounts")
	})
	solar := b.space(t, "solar")
	for i := range 2 * most {
		name := fmt.Sprintf("app-%d", i)
		byHand(t, solar.CoreV1().ServiceAccounts("default").Create, annotated(name, roleKey, rolePrefix+"solar-"+strings.Repeat("x", 900)+name))
	}
	eventually(t, func() error {
		events := must(solar.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "reason=HostQuotaExceeded,involvedObject.kind=ServiceAccount"}))(t).Items
		if len(events) == 0 {
			return errors.New("no ServiceAccount has the event HostQuotaExceeded")
		}
		name := events[0].InvolvedObject.Name
		_, err := solar.CoreV1().Pods("default").Create(t.Context(), newPod("as-"+name, runningAs(name)), metav1.CreateOptions{})
		if err == nil {
			solar.awaitEvent(t, "default", "Pod", "as-"+name, "HostQuotaExceeded")
		}
		return err
	})
	if all := must(host.CoreV1().ServiceAccounts("berth-solar").List(t.Context(), metav1.ListOptions{}))(t).Items; len(all) > most {
		t.Errorf("the space has %d host accounts, and its quota is %d", len(all), most)
	}
}

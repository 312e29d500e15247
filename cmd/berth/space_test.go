// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/testhost"
)

func newSpace(name, tenant string) *v1alpha1.Space {
	return &v1alpha1.Space{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"test": "cli"}},
		Spec: v1alpha1.SpaceSpec{TenantName: tenant, Access: v1alpha1.Access{Owners: []v1alpha1.Owner{
			{Kind: v1alpha1.GroupKind, Name: "devs", ClusterRoles: []string{"view"}}, {Kind: v1alpha1.UserKind, Name: "alice", ClusterRoles: []string{"admin"}},
		}}},
		Status: v1alpha1.SpaceStatus{
			State: v1alpha1.SpaceRunning, Endpoint: "https://berth.example/spaces/" + name, Usage: v1alpha1.Usage{CPU: "500m/8", Memory: "1Gi/16Gi"},
			Quota: v1alpha1.QuotaStatus{
				Hard: map[corev1.ResourceName]resource.Quantity{"limits.cpu": resource.MustParse("8")}, Used: map[corev1.ResourceName]resource.Quantity{"limits.cpu": resource.MustParse("4")},
			},
			Conditions: []metav1.Condition{{
				Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: string(v1alpha1.SpaceRunning), Message: "the space serves requests", LastTransitionTime: metav1.Now(),
			}},
		},
	}
}

// T1, T9: a space is created with its tenant and its isolation, and is waited for.
func TestSpaceIsCreatedAsTheFlagsSay(t *testing.T) {
	h := use(t)
	args := []string{"space", "create", "made-space", "--tenant", "acme", "--isolation", "Dedicated"}
	var printed v1alpha1.Space
	if err := yaml.UnmarshalStrict([]byte(must(t, append(args, "--dry-run=client", "-o", "yaml")...)), &printed); err != nil || printed.Spec.TenantName != "acme" || printed.Spec.Isolation != v1alpha1.Dedicated {
		t.Errorf("printed %+v (%v)", printed, err)
	}
	if out := must(t, append(args, "--dry-run=server", "-o", "name")...); out != "space.berth.dev/made-space\n" {
		t.Errorf("printed %q", out)
	}
	if _, _, err := berth(t, "space", "create", "x", "--isolation", "Own", "--dry-run=client"); err == nil || !strings.Contains(err.Error(), "--isolation=Own: must be Shared or Dedicated") {
		t.Errorf("got %v", err)
	}
	space := &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: "made-space"}}
	h.forget(t, space.DeepCopy())
	ended := make(chan string, 1)
	go func() {
		out, _, err := berth(t, append(args, "--wait")...)
		ended <- fmt.Sprint(out, err)
	}()
	testhost.Eventually(t, "create the space and wait for it", func(ctx context.Context) error {
		select {
		case got := <-ended:
			if got != "space.berth.dev/made-space created\n<nil>" {
				t.Errorf("got %q", got)
			}
			return nil
		default:
			return errors.Join(errors.New("it waits"), h.report(ctx, space, metav1.ConditionTrue, string(v1alpha1.SpaceRunning), ""))
		}
	})
	if space.Spec.TenantName != "acme" || space.Spec.Isolation != v1alpha1.Dedicated || space.Spec.PlatformName != "berth" {
		t.Errorf("created is %+v", space.Spec)
	}
}

// U8: spaces are listed for one tenant, or for all with a column for it.
func TestSpacesAreListedByTenant(t *testing.T) {
	h := use(t)
	h.make(t, newSpace("one", "acme"))
	h.make(t, newSpace("one-ci", "acme"))
	h.make(t, newSpace("two", "zeta"))
	h.make(t, newSpace("free", ""))
	for _, tc := range []struct {
		reason string
		args   []string
		want   string
	}{
		{"all, with kubectl's columns", []string{"-l", "test=cli"}, `^NAME +READY +STATE +CPU +MEMORY +AGE\nfree .*\none .*\none-ci .*\ntwo +True +Running +500m/8 +1Gi/16Gi +\S+\n$`},
		{"those of a tenant", []string{"--tenant", "acme"}, `^NAME.*\none .*\none-ci .*\n$`},
		{"those of all tenants", []string{"-T", "-l", "test=cli"}, `^TENANT +NAME +READY(.|\n)*\nacme +one +True(.|\n)*\nzeta +two +True`},
		{"the tenant is there once", []string{"-T", "-o", "wide", "two"}, `^TENANT +NAME +READY +STATE +CPU +MEMORY +AGE +ISOLATION(.|\n)*zeta +two .*https://berth.example/spaces/two +the space serves requests\n$`},
		{"names", []string{"-t", "zeta", "-o", "name"}, `^space.berth.dev/two\n$`},
		{"fields", []string{"two", "-o", "jsonpath={.status.endpoint}"}, `^https://berth.example/spaces/two$`},
		{"whole objects", []string{"two", "-o", "json"}, `"kind": "Space"`},
	} {
		if out := must(t, append([]string{"space", "get"}, tc.args...)...); !regexp.MustCompile(tc.want).MatchString(out) {
			t.Errorf("%s: %q printed:\n%s", tc.reason, tc.args, out)
		}
	}
	for says, args := range map[string][]string{
		"--all-tenants lists the spaces of all tenants; don't set --tenant": {"-T", "-t", "acme"},
		"--tenant=acme: a name is enough":                                   {"-t", "acme", "two"},
	} {
		if _, _, err := berth(t, append([]string{"space", "get"}, args...)...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: got %v", args, err)
		}
	}
}

// T7: -w prints changes, with one header, until the command is interrupted.
func TestSpacesAreWatched(t *testing.T) {
	h := use(t)
	space := newSpace("seen", "")
	h.make(t, space)
	h.make(t, newSpace("unseen", ""))
	for name, tc := range map[string]struct {
		args          []string
		before, after string
	}{
		"a table": {[]string{"seen"}, "seen", `^NAME .*\nseen +True +Running .*\n(seen +True +Asleep .*\n)+$`},
		"all":     {[]string{"-T"}, "seen", `^TENANT +NAME .*\n(.*\n)*<none>? +seen +True +Asleep|(?m)^ *seen +True +Asleep`},
		"fields":  {[]string{"seen", "-o", `jsonpath={.status.state}{"\n"}`}, "Running", `^Running\n(Asleep\n)+$`},
		"names":   {[]string{"seen", "-o", "name"}, "seen", `^(space.berth.dev/seen\n){2,}$`},
	} {
		t.Run(name, func(t *testing.T) {
			testhost.Eventually(t, "let it run", func(ctx context.Context) error { return h.setState(ctx, space, v1alpha1.SpaceRunning) })
			ctx, cancel := context.WithCancel(t.Context())
			out, _, ended := begin(ctx, append([]string{"space", "get", "-w"}, tc.args...)...)
			testhost.Eventually(t, "print the space", func(context.Context) error {
				if !strings.Contains(out.String(), tc.before) {
					return errors.New(out.String())
				}
				return nil
			})
			testhost.Eventually(t, "print the change", func(ctx context.Context) error {
				if err := h.setState(ctx, space, v1alpha1.SpaceAsleep); err != nil {
					return err
				}
				if !regexp.MustCompile(tc.after).MatchString(out.String()) {
					return errors.New(out.String())
				}
				return nil
			})
			if strings.Contains(out.String(), "unseen") && len(tc.args) > 0 && tc.args[0] == "seen" {
				t.Errorf("another space is printed:\n%s", out.String())
			}
			cancel()
			if err := <-ended; err != nil {
				t.Errorf("an interrupt is an error: %v", err)
			}
		})
	}
}

func (h *testHost) setState(ctx context.Context, space *v1alpha1.Space, state v1alpha1.SpaceState) error {
	if err := h.Get(ctx, client.ObjectKeyFromObject(space), space); err != nil {
		return err
	}
	space.Status.State = state
	return h.Status().Update(ctx, space)
}

// T7: describe shows the spec, the conditions, the usage, and the events that the host has.
func TestSpaceIsDescribedWithItsEvents(t *testing.T) {
	h := use(t)
	h.make(t, newSpace("told", "acme"))
	for _, of := range []string{"told", "other"} {
		event := &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: "default", Name: of + ".1"},
			InvolvedObject: corev1.ObjectReference{Kind: "Space", Name: of, APIVersion: v1alpha1.GroupVersion.String()},
			Type:           "Normal", Reason: "Woken", Message: "a request woke " + of, LastTimestamp: metav1.NewTime(time.Now()), Source: corev1.EventSource{Component: "berth"},
		}
		h.forget(t, event.DeepCopy())
		if err := h.Create(t.Context(), event); err != nil {
			t.Fatal(err)
		}
	}
	out := must(t, "space", "describe", "told")
	for _, part := range []string{
		`(?m)^Tenant: +acme$`, `(?m)^Owners: +Group devs \(view\); User alice \(admin\)$`, `(?m)^  Ready +True +\S+ +Running +the space serves requests$`,
		`(?m)^  limits.cpu +█████░░░░░ 4/8$`, `(?m)^  Normal +Woken +\S+ +berth +a request woke told$`,
	} {
		if !regexp.MustCompile(part).MatchString(out) {
			t.Errorf("no %s in:\n%s", part, out)
		}
	}
	if strings.Contains(out, "woke other") {
		t.Errorf("events of another space:\n%s", out)
	}
}

// X6: a space is deleted with a policy, and followed to its end.
func TestSpaceIsDeletedWithItsPolicy(t *testing.T) {
	h := use(t)
	space := newSpace("ending", "")
	h.make(t, space, v1alpha1.Finalizer)
	if out := must(t, "space", "delete", "ending", "--policy", "Retain", "--dry-run=server"); out != "space.berth.dev/ending deleted (server dry run)\n" {
		t.Errorf("printed %q", out)
	}
	if _, _, err := berth(t, "space", "delete", "ending", "--policy", "Keep"); err == nil || !strings.Contains(err.Error(), "--policy=Keep") || !strings.Contains(err.Error(), `"Retain"`) {
		t.Errorf("got %v", err)
	}
	if out := must(t, "space", "delete", "ending", "--policy", "Retain", "--wait=false"); out != "space.berth.dev/ending is being deleted\n" {
		t.Errorf("printed %q", out)
	}
	if err := h.Get(t.Context(), client.ObjectKeyFromObject(space), space); err != nil || space.DeletionTimestamp == nil || space.Spec.DeletionPolicy != v1alpha1.DeletionRetain {
		t.Fatalf("it is not being deleted: %+v (%v)", space, err)
	}
	_, progress, err := berth(t, "space", "delete", "ending", "--timeout", "300ms")
	if err == nil || !strings.Contains(err.Error(), "not done after 300ms; the deletion continues, see 'berth space get' (waiting for finalizers berth.dev/space)") || progress != "space.berth.dev/ending: waiting for finalizers berth.dev/space\n" {
		t.Errorf("got %v and %q", err, progress)
	}
}

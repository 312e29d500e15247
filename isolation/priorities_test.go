// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation_test

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/translate"
)

// M4: whoever holds a space's account has its pods preempt no pods of other spaces, and has no classes but the space's.
func TestHostileAccountsDoNotPreemptPodsOfOtherSpaces(t *testing.T) {
	g, ctx := startPolicedHost(t), t.Context()
	for name, class := range map[string]*schedulingv1.PriorityClass{
		"silver": {Value: 100, PreemptionPolicy: ptr.To(corev1.PreemptNever)}, "gold": {Value: 1000, PreemptionPolicy: ptr.To(corev1.PreemptNever)},
		"plain": {}, "usual": {Value: 1000}, "low": {Value: -1, PreemptionPolicy: ptr.To(corev1.PreemptNever)}, "mine.own": {Value: 7, PreemptionPolicy: ptr.To(corev1.PreemptNever)},
		"theirs.own": {Value: 7, PreemptionPolicy: ptr.To(corev1.PreemptNever)},
	} {
		class.ObjectMeta = metav1.ObjectMeta{Name: name}
		if err := g.admin.Create(ctx, class); err != nil {
			t.Fatal(err)
		}
	}
	allow := func(priorities translate.Priorities) {
		t.Helper()
		space := g.space
		space.Settings.Priorities = priorities
		if err := isolation.Apply(ctx, g.admin, space, nil); err != nil {
			t.Fatal(err)
		}
	}
	try := func(class string) error {
		pod := hostPod("mine--default--prior")
		pod.Spec.PriorityClassName = class
		return g.account.Create(ctx, pod, client.DryRunAll)
	}
	// Admission learns of a class, and of the annotation, from watches.
	await := func(class string, done func(error) bool) {
		t.Helper()
		var last error
		if err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, time.Minute, true, func(context.Context) (bool, error) {
			last = try(class)
			return done(last), nil
		}); err != nil {
			t.Fatalf("a pod of the class %q: %v", class, last)
		}
	}
	allowed := func(err error) bool { return err == nil }
	check := func(where string, refusals map[string]string) {
		t.Helper()
		for class, want := range refusals {
			if err := try(class); want == "" && err != nil || want != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s, a pod of the class %q: got %v, want %q", where, class, err, want)
			}
		}
	}
	const preempts, foreign = "may not preempt pods of other spaces", "may have only classes of the space"
	allow(translate.Priorities{})
	await("silver", allowed)
	await("theirs.own", allowed) // no class is known to be the space's
	check("by default", map[string]string{"": "", "plain": "", "gold": "", "mine.own": "", "usual": preempts, "low": preempts, "system-node-critical": "begins with system-"})

	allow(translate.Priorities{Allowed: []string{"silver"}, Default: "plain"})
	await("gold", apierrors.IsForbidden)
	check("with classes", map[string]string{
		"": "", "silver": "", "plain": "", "mine.own": "", "gold": foreign, "theirs.own": foreign, "usual": preempts,
	})

	allow(translate.Priorities{Allowed: []string{"usual"}, OwnNodes: true})
	await("usual", allowed)
	check("on nodes of its own", map[string]string{"": "", "gold": foreign, "low": foreign, "preempts:own-nodes": "no PriorityClass"})
}

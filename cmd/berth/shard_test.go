// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/testhost"
)

func newShard(namespace, name string) *v1alpha1.Shard {
	return &v1alpha1.Shard{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"test": "cli"}}, Spec: v1alpha1.ShardSpec{PlatformName: "of-shards"},
		Status: v1alpha1.ShardStatus{
			Conditions: []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Serving", LastTransitionTime: metav1.Now()}},
			Address:    "192.0.2.1:7445", Spaces: ptr.To[int32](40), Awake: ptr.To[int32](7), Memory: ptr.To(resource.MustParse("1Gi")), MemoryLimit: ptr.To(resource.MustParse("7Gi")),
		},
	}
}

func (h *testHost) spec(t *testing.T, shard *v1alpha1.Shard) string {
	t.Helper()
	if err := h.Get(t.Context(), client.ObjectKeyFromObject(shard), shard); err != nil {
		t.Fatal(err)
	}
	return fmt.Sprint(ptr.Deref(shard.Spec.Unschedulable, false), ptr.Deref(shard.Spec.Drain, false))
}

// spaceOn makes a space that a shard has.
func (h *testHost) spaceOn(t *testing.T, name, shard string) *v1alpha1.Space {
	t.Helper()
	space := newSpace(name, "acme")
	space.Spec.PlatformName, space.Status.Shard = "of-shards", shard
	h.make(t, space)
	return space
}

// becomes changes the status of a space, as the operator and the shards do.
func (h *testHost) becomes(t *testing.T, name, shard, movingTo string) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"status":{"shard":%q,"movingTo":%q}}`, shard, movingTo)
	if movingTo == "" {
		patch = fmt.Appendf(nil, `{"status":{"shard":%q,"movingTo":null}}`, shard)
	}
	if err := h.Status().Patch(t.Context(), &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: name}}, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		t.Fatal(err)
	}
}

// decided waits until a move is asked for, and removes the annotation.
func (h *testHost) decided(t *testing.T, name, to string) {
	t.Helper()
	testhost.Eventually(t, "a move is asked for", func(ctx context.Context) error {
		space := &v1alpha1.Space{}
		if err := h.Get(ctx, client.ObjectKey{Name: name}, space); err != nil {
			return err
		}
		if got, asked := space.Annotations[v1alpha1.AnnotationMoveTo]; !asked || got != to {
			return fmt.Errorf("it is %q, %v", got, asked)
		}
		return nil
	})
	if err := h.Patch(t.Context(), &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: name}}, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"metadata":{"annotations":{%q:null}}}`, v1alpha1.AnnotationMoveTo))); err != nil {
		t.Fatal(err)
	}
}

func contains(t *testing.T, what *output, part string) {
	t.Helper()
	testhost.Eventually(t, "the command prints "+part, func(context.Context) error {
		if got := what.String(); !strings.Contains(got, part) {
			return fmt.Errorf("it prints %q", got)
		}
		return nil
	})
}

// T9: shards are listed as kubectl lists them, and found in any namespace.
func TestShardsAreListed(t *testing.T) {
	h := use(t)
	for _, namespace := range []string{"platform-one", "platform-two"} {
		if err := h.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	h.make(t, newShard("platform-one", "listed-0"))
	h.make(t, newShard("platform-one", "listed-1"))
	h.make(t, newShard("platform-two", "listed-1"))
	out := must(t, "shard", "list")
	if lines := strings.Split(out, "\n"); !strings.HasPrefix(lines[0], "NAME       READY   SPACES   AWAKE   MEMORY   UNSCHEDULABLE   AGE") || !strings.Contains(out, "listed-0   True    40       7       1Gi") || strings.Count(out, "listed-1") != 2 {
		t.Errorf("printed\n%s", out)
	}
	if out := must(t, "shard", "list", "-o", "wide"); !strings.Contains(out, "7Gi") || !strings.Contains(out, "192.0.2.1:7445") {
		t.Errorf("printed\n%s", out)
	}
	if out := must(t, "shard", "list", "-n", "platform-two", "-o", "name"); out != "shard.berth.dev/listed-1\n" {
		t.Errorf("printed %q", out)
	}
	var one v1alpha1.Shard
	if err := yaml.UnmarshalStrict([]byte(must(t, "shard", "get", "listed-0", "-o", "yaml")), &one); err != nil || one.Status.Address != "192.0.2.1:7445" || one.Namespace != "platform-one" {
		t.Errorf("printed %+v (%v)", one, err)
	}
	for says, args := range map[string][]string{
		`shards.berth.dev "none" not found`: {"get", "none"}, "in the namespaces platform-one, platform-two; set --namespace": {"cordon", "listed-1"},
	} {
		if _, _, err := berth(t, append([]string{"shard"}, args...)...); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v: %v, want it to say %s", args, err, says)
		}
	}
	if out := must(t, "__complete", "shard", "drain", "listed-0", ""); !strings.Contains(out, "listed-1") || strings.Contains(out, "listed-0") {
		t.Errorf("completed %q", out)
	}
}

// T9: a shard is cordoned and uncordoned.
func TestShardsAreCordoned(t *testing.T) {
	h := use(t)
	shard := newShard("default", "cordoned-0")
	h.make(t, shard)
	for _, step := range []struct{ args, out, spec string }{
		{"cordon cordoned-0 --dry-run=server", "cordoned (server dry run)", "false false"},
		{"cordon cordoned-0", "cordoned", "true false"},
		{"cordon cordoned-0", "already cordoned", "true false"},
		{"drain cordoned-0 --dry-run=client", "drained (dry run)", "true false"},
		{"drain cordoned-0 --wait=false", "is being drained", "true true"},
		{"uncordon cordoned-0", "uncordoned", "false false"},
		{"uncordon cordoned-0", "already uncordoned", "false false"},
		{"drain cordoned-0 --wait=false", "is being drained", "true true"},
	} {
		if out := must(t, append([]string{"shard"}, strings.Fields(step.args)...)...); out != "shard.berth.dev/cordoned-0 "+step.out+"\n" {
			t.Errorf("%s: printed %q", step.args, out)
		}
		if got := h.spec(t, shard); got != step.spec {
			t.Errorf("%s: it is unschedulable and drained %s, want %s", step.args, got, step.spec)
		}
	}
}

// T9: a drain waits until the last space has left, and says how many are left.
func TestADrainShowsItsProgress(t *testing.T) {
	h := use(t)
	h.make(t, newShard("default", "drained-0"))
	h.spaceOn(t, "drained-a", "drained-0")
	h.spaceOn(t, "drained-b", "drained-0")
	h.spaceOn(t, "drained-c", "drained-1")
	if _, _, err := berth(t, "shard", "drain", "drained-0", "--timeout", "5s"); err == nil || !strings.Contains(err.Error(), "not done after 5s; the drain continues, see 'berth shard list' (2 spaces left, 0 moving)") {
		t.Errorf("got %v", err)
	}
	out, progress, ended := begin(t.Context(), "shard", "drain", "drained-0")
	contains(t, progress, "shard.berth.dev/drained-0: 2 spaces left, 0 moving\n")
	h.becomes(t, "drained-a", "drained-0", "drained-1")
	contains(t, progress, "2 spaces left, 1 moving")
	h.becomes(t, "drained-a", "drained-1", "")
	contains(t, progress, "1 space left, 0 moving")
	h.becomes(t, "drained-b", "drained-1", "")
	if err := <-ended; err != nil || out.String() != "shard.berth.dev/drained-0 drained\n" {
		t.Errorf("printed %q (%v)", out, err)
	}
	h.becomes(t, "drained-b", "drained-0", "")
	_, progress, ended = begin(t.Context(), "shard", "drain", "drained-0")
	contains(t, progress, "1 space left")
	must(t, "shard", "uncordon", "drained-0")
	if err := <-ended; err == nil || !strings.Contains(err.Error(), "was ended by somebody else") {
		t.Errorf("got %v", err)
	}
}

// T9: a drain doesn't wait for spaces that stay, and says how they move, too.
func TestADrainEndsWithSpacesThatStay(t *testing.T) {
	h := use(t)
	h.make(t, newShard("default", "outgrown-0"))
	h.spaceOn(t, "outgrown", "outgrown-0")
	change := func(part, patch string) {
		t.Helper()
		space := &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: "outgrown"}}
		var err error
		if part == "status" {
			err = h.Status().Patch(t.Context(), space, client.RawPatch("application/merge-patch+json", []byte(patch)))
		} else {
			err = h.Patch(t.Context(), space, client.RawPatch("application/merge-patch+json", []byte(patch)))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	change("spec", `{"spec":{"dedicateAfterSeconds":600}}`)
	change("status", `{"status":{"isolation":"Dedicated","conditions":[{"type":"WithinShare","status":"True","reason":"Dedicated","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`)
	if _, _, err := berth(t, "shard", "drain", "outgrown-0"); err == nil || !strings.Contains(err.Error(), "spec.dedicateAfterSeconds to 0") {
		t.Errorf("got %v", err)
	}
	change("spec", `{"spec":{"dedicateAfterSeconds":0}}`)
	if _, _, err := berth(t, "shard", "drain", "outgrown-0", "--timeout", "5s"); err == nil || !strings.Contains(err.Error(), "1 space left") {
		t.Errorf("when it is about to be shared again, got %v", err)
	}
}

// T9: a space moves, and the command prints where, or why not.
func TestASpaceIsMoved(t *testing.T) {
	h := use(t)
	h.spaceOn(t, "moved", "moved-0")
	h.make(t, newSpace("unplaced", ""))
	if _, _, err := berth(t, "space", "move", "unplaced"); err == nil || !strings.Contains(err.Error(), "has no shard") {
		t.Errorf("got %v", err)
	}
	if out := must(t, "space", "list", "moved", "-o", "wide"); !strings.Contains(out, "SHARD") || !strings.Contains(out, "moved-0") {
		t.Errorf("printed %q", out)
	}
	if out := must(t, "space", "move", "moved", "--to", "moved-0"); out != "space.berth.dev/moved already on moved-0\n" {
		t.Errorf("printed %q", out)
	}
	if out := must(t, "space", "move", "moved", "--dry-run=server"); out != "space.berth.dev/moved moved (server dry run)\n" {
		t.Errorf("printed %q", out)
	}
	out, progress, ended := begin(t.Context(), "space", "move", "moved", "--to", "moved-1")
	contains(t, progress, "waiting for the operator")
	h.becomes(t, "moved", "moved-0", "moved-1")
	h.decided(t, "moved", "moved-1")
	contains(t, progress, "moves from moved-0 to moved-1")
	h.becomes(t, "moved", "moved-1", "")
	if err := <-ended; err != nil || out.String() != "space.berth.dev/moved moved to moved-1\n" {
		t.Errorf("printed %q (%v)", out, err)
	}
	_, progress, ended = begin(t.Context(), "space", "move", "moved", "--to", "moved-2")
	contains(t, progress, "waiting for the operator")
	h.becomes(t, "moved", "moved-1", "moved-0") // as it is drained, for example
	h.decided(t, "moved", "moved-2")
	contains(t, progress, "moves from moved-1 to moved-0")
	h.becomes(t, "moved", "moved-0", "")
	if err := <-ended; err == nil || err.Error() != "space.berth.dev/moved moved to moved-0, not to moved-2: it was moved meanwhile; run the command again" {
		t.Errorf("got %v", err)
	}
	h.becomes(t, "moved", "moved-1", "")

	event := func(name, message string) {
		t.Helper()
		if err := h.Create(t.Context(), &corev1.Event{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: name}, Reason: v1alpha1.ReasonMoveRefused, Message: message,
			InvolvedObject: corev1.ObjectReference{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Space", Name: "moved"},
		}); err != nil {
			t.Fatal(err)
		}
	}
	event("moved.old", "the last time")
	_, progress, ended = begin(t.Context(), "space", "move", "moved")
	contains(t, progress, "waiting for the operator")
	event("moved.new", "there is no other shard; add replicas")
	h.decided(t, "moved", "")
	if err := <-ended; err == nil || err.Error() != "space.berth.dev/moved stays on moved-1: there is no other shard; add replicas" {
		t.Errorf("got %v", err)
	}
	if out := must(t, "space", "move", "moved", "--wait=false"); out != "space.berth.dev/moved is being moved\n" {
		t.Errorf("printed %q", out)
	}
	if _, _, err := berth(t, "space", "move", "moved", "--timeout", "5s"); err == nil || !strings.Contains(err.Error(), "(waiting for the operator)") {
		t.Errorf("got %v", err)
	}
	if _, _, err := berth(t, "space", "move", "moved", "unplaced"); err == nil {
		t.Error("two spaces are moved to one shard")
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/operator"
	"github.com/berth-dev/berth/translate"
)

// shardNamespace is where the shards of the tests are.
const shardNamespace = "platform-of-shards"

// shard creates the objects of a shard, and renews its Lease until the end of the test. The clock of the shard is far off. The Lease is long, so
// that a busy machine renews it in time.
func (e *env) shard(platform, name string, change ...func(*v1alpha1.Shard)) {
	e.Helper()
	e.shardWithLease(platform, name, 20*time.Second, change...)
}

// shardWithLease is shard, and stops to renew the Lease when the returned function is called.
func (e *env) shardWithLease(platform, name string, duration time.Duration, change ...func(*v1alpha1.Shard)) (stop func()) {
	e.Helper()
	if err := e.Create(e.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: shardNamespace}}); err != nil && !apierrors.IsAlreadyExists(err) {
		e.Fatal(err)
	}
	one := &v1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Namespace: shardNamespace, Name: name}, Spec: v1alpha1.ShardSpec{PlatformName: platform}}
	one.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Serving", LastTransitionTime: metav1.Now()}}
	for _, f := range change {
		f(one)
	}
	status := one.Status
	e.create(one)
	one.Status = status
	if err := e.Status().Update(e.Context(), one); err != nil {
		e.Fatal(err)
	}
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: shardNamespace, Name: name}}
	lease.Spec = coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: ptr.To(int32(duration.Seconds())), RenewTime: &metav1.MicroTime{Time: time.Unix(0, 0)}}
	e.create(lease)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(200 * time.Millisecond)
		defer tick.Stop()
		for ctx.Err() == nil {
			lease.Spec.RenewTime = &metav1.MicroTime{Time: lease.Spec.RenewTime.Add(time.Second)}
			if err := e.Update(ctx, lease); err != nil && ctx.Err() == nil {
				e.Errorf("renew the Lease of %s: %v", name, err)
				return
			}
			select {
			case <-ctx.Done():
			case <-tick.C:
			}
		}
	}()
	stop = sync.OnceFunc(func() { cancel(); <-done })
	e.Cleanup(func() {
		stop()
		_ = e.Delete(context.Background(), lease)
		_ = e.Delete(context.Background(), one)
	})
	return stop
}

// spaceOn creates a space of a platform, and returns it.
func (e *env) spaceOn(platform, name string) *v1alpha1.Space {
	e.Helper()
	one := &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.SpaceSpec{PlatformName: platform}}
	e.create(one)
	return one
}

// claim notes that a space has a store, as a shard does.
func (e *env) claim(name string) {
	e.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+translate.AnnotationStore+`":"of-`+name+`"}}}`))
	if err := e.Patch(e.Context(), &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: name}}, patch); err != nil {
		e.Fatal(err)
	}
}

// place creates a space that a shard has.
func (e *env) place(platform, name string) (shard string) {
	e.Helper()
	e.spaceOn(platform, name)
	shard = e.spaceIs(name, "has a shard", func(s *v1alpha1.Space) bool { return s.Status.Shard != "" }).Status.Shard
	e.claim(name)
	return shard
}

// arrive moves a space to where it is to move.
func (e *env) arrive(name string) {
	e.Helper()
	e.eventually("the space arrives", func(ctx context.Context) error {
		one := &v1alpha1.Space{}
		if err := e.Get(ctx, client.ObjectKey{Name: name}, one); err != nil {
			return err
		}
		one.Status.Shard, one.Status.MovingTo = one.Status.MovingTo, ""
		return e.Status().Update(ctx, one)
	})
}

func (e *env) ask(name, to string) {
	e.Helper()
	patch := client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"annotations":{"`+v1alpha1.AnnotationMoveTo+`":"`+to+`"}}}`))
	if err := e.Patch(e.Context(), &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: name}}, patch); err != nil {
		e.Fatal(err)
	}
}

// says waits for an event about a space.
func (e *env) says(name, reason, part string) {
	e.Helper()
	e.eventually(fmt.Sprintf("an event %s about %s", reason, name), func(ctx context.Context) error {
		list := &eventsv1.EventList{}
		err := e.List(ctx, list)
		var notes []string
		for i := range list.Items {
			if event := &list.Items[i]; event.Reason == reason && event.Regarding.Name == name {
				if notes = append(notes, event.Note); strings.Contains(event.Note, part) {
					return nil
				}
			}
		}
		return fmt.Errorf("there is none that says %q, but %q (%w)", part, notes, err)
	})
}

func onShard(shard string) func(*v1alpha1.Space) bool {
	return func(s *v1alpha1.Space) bool { return s.Status.Shard == shard && s.Status.MovingTo == "" }
}

func asked(s *v1alpha1.Space) bool {
	_, asked := s.Annotations[v1alpha1.AnnotationMoveTo]
	return asked
}

// T8: new spaces are spread over the shards of their platform. A space whose store a process has gets its shard from that process.
func TestNewSpacesGetShards(t *testing.T) {
	e := newEnv(t)
	e.shard("spread", "spread-0")
	e.shard("spread", "spread-1")
	e.shard("spread", "spread-2")
	e.run()
	stored := &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: "spread-stored", Annotations: map[string]string{translate.AnnotationStore: "mine"}}, Spec: v1alpha1.SpaceSpec{PlatformName: "spread"}}
	e.create(stored)
	e.spaceOn("elsewhere", "spread-elsewhere")
	of := map[string]int{}
	for i := range 9 {
		e.spaceOn("spread", fmt.Sprint("spread-space-", i))
	}
	for i := range 9 {
		of[e.spaceIs(fmt.Sprint("spread-space-", i), "has a shard", func(s *v1alpha1.Space) bool { return s.Status.Shard != "" }).Status.Shard]++
	}
	if of["spread-0"] != 3 || of["spread-1"] != 3 || of["spread-2"] != 3 {
		t.Errorf("the spaces are on %v", of)
	}
	for _, name := range []string{"spread-stored", "spread-elsewhere"} {
		if one := e.spaceIs(name, "is there", func(*v1alpha1.Space) bool { return true }); one.Status.Shard != "" {
			t.Errorf("%s is on %q", name, one.Status.Shard)
		}
	}
}

// T9: a shard whose Lease is not renewed gets no spaces, whatever its object and the clocks say.
func TestAShardThatIsNotAliveGetsNoSpaces(t *testing.T) {
	e := newEnv(t)
	stop := e.shardWithLease("alive", "alive-0", 3*time.Second)
	e.shard("alive", "alive-1", func(s *v1alpha1.Shard) { s.Status.Conditions[0].Status = metav1.ConditionFalse })
	e.run()
	if got := e.place("alive", "alive-before"); got != "alive-0" {
		t.Fatalf("it is on %s", got)
	}
	stop()
	at := 0
	e.eventually("new spaces wait", func(ctx context.Context) error {
		at++
		name := fmt.Sprint("alive-", at)
		e.spaceOn("alive", name)
		until := time.Now().Add(5 * time.Second) // longer than the Lease
		for time.Now().Before(until) && ctx.Err() == nil {
			one := &v1alpha1.Space{}
			if err := e.Get(ctx, client.ObjectKey{Name: name}, one); err != nil || one.Status.Shard != "" {
				return fmt.Errorf("it is on %q (%w)", one.Status.Shard, err)
			}
		}
		return nil
	})
	waiting := fmt.Sprint("alive-", at)
	e.says(waiting, v1alpha1.ReasonNoShard, "2 not ready")
	e.shard("alive", "alive-2")
	e.spaceIs(waiting, "is on the new shard", onShard("alive-2"))
	// A space that the shard never had gets another one when the shard is deleted. The store of another one is on the shard.
	e.spaceIs("alive-before", "stays", onShard("alive-0"))
	e.spaceOn("alive", "alive-unclaimed")
	if got := e.spaceIs("alive-unclaimed", "has a shard", func(s *v1alpha1.Space) bool { return s.Status.Shard != "" }).Status.Shard; got != "alive-2" {
		t.Fatalf("it is on %s", got)
	}
	e.shard("alive", "alive-3")
	if err := e.Delete(t.Context(), &v1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Namespace: shardNamespace, Name: "alive-2"}}); err != nil {
		t.Fatal(err)
	}
	e.spaceIs("alive-unclaimed", "is on the next shard", onShard("alive-3"))
	if err := e.Delete(t.Context(), &v1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Namespace: shardNamespace, Name: "alive-0"}}); err != nil {
		t.Fatal(err)
	}
	e.place("alive", "alive-last")
	e.spaceIs("alive-before", "stays", onShard("alive-0"))
}

// T9: a space moves where an admin asks, and an event says why it doesn't.
func TestASpaceMovesAsAsked(t *testing.T) {
	e := newEnv(t)
	e.shard("asked", "asked-0")
	e.shard("asked", "asked-1")
	e.shard("asked", "asked-2", func(s *v1alpha1.Shard) { s.Spec.Drain = ptr.To(true) })
	e.run()
	first := e.place("asked", "asked-space")
	other := "asked-1"
	if first == other {
		other = "asked-0"
	}
	e.ask("asked-space", other)
	e.spaceIs("asked-space", "moves", func(s *v1alpha1.Space) bool {
		return s.Status.MovingTo == other && s.Status.Shard == first && !asked(s)
	})
	e.says("asked-space", v1alpha1.ReasonMoving, "from shard "+first+" to "+other)
	e.ask("asked-space", "asked-2")
	e.says("asked-space", v1alpha1.ReasonMoveRefused, "is being moved already")
	e.arrive("asked-space")
	e.ask("asked-space", "") // chooses the only other one
	e.spaceIs("asked-space", "moves back", func(s *v1alpha1.Space) bool {
		return s.Status.MovingTo == first && s.Status.Shard == other && !asked(s)
	})
	e.arrive("asked-space")
	for to, why := range map[string]string{first: "already", "gone": "there is no shard gone", "asked-2": "berth shard uncordon asked-2"} {
		e.ask("asked-space", to)
		e.says("asked-space", v1alpha1.ReasonMoveRefused, why)
		e.spaceIs("asked-space", "stays", func(s *v1alpha1.Space) bool { return onShard(first)(s) && !asked(s) })
	}
	// A move to a shard that was deleted is withdrawn.
	e.ask("asked-space", other)
	e.spaceIs("asked-space", "moves", func(s *v1alpha1.Space) bool { return s.Status.MovingTo == other })
	if err := e.Delete(t.Context(), &v1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Namespace: shardNamespace, Name: other}}); err != nil {
		t.Fatal(err)
	}
	e.spaceIs("asked-space", "stays", onShard(first))
	e.says("asked-space", v1alpha1.ReasonMoveRefused, "is withdrawn")
}

// T9: all spaces of a drained shard leave it, two at once.
func TestADrainedShardIsEmptied(t *testing.T) {
	e := newEnv(t)
	e.shard("drain", "drain-0")
	e.run()
	var names []string
	for i := range 5 {
		names = append(names, fmt.Sprint("drain-space-", i))
		e.place("drain", names[i])
	}
	e.shard("drain", "drain-1")
	e.shard("drain", "drain-2", func(s *v1alpha1.Shard) { s.Spec.Unschedulable = ptr.To(true) })
	change(e, &v1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Namespace: shardNamespace, Name: "drain-0"}}, func(s *v1alpha1.Shard) { s.Spec.Drain = ptr.To(true) })
	for len(names) > 0 {
		var moving []string
		e.eventually("spaces move", func(ctx context.Context) error {
			list := &v1alpha1.SpaceList{}
			err := e.List(ctx, list)
			moving = nil
			for _, one := range list.Items {
				if one.Status.MovingTo != "" {
					moving = append(moving, one.Name)
				}
				if one.Status.MovingTo == "drain-2" {
					t.Fatal("it moves to a cordoned shard")
				}
			}
			if len(moving) < min(2, len(names)) {
				return fmt.Errorf("as many: %v (%w)", moving, err)
			}
			return err
		})
		if len(moving) > 2 {
			t.Fatalf("at once: %v", moving)
		}
		e.arrive(moving[0])
		names = slices.DeleteFunc(names, func(name string) bool { return name == moving[0] })
	}
}

// D2: the operator never gives a space a shard after another process has claimed it.
func TestAClaimPrecedesThePlacement(t *testing.T) {
	e := newEnv(t)
	e.shard("claim", "claim-0")
	claimed := false
	e.run(func(c *operator.Config) {
		c.NewClient = func(config *rest.Config, options client.Options) (client.Client, error) {
			c, err := client.NewWithWatch(config, options)
			return interceptor.NewClient(c, interceptor.Funcs{
				SubResourcePatch: func(ctx context.Context, c client.Client, name string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
					if o.GetName() == "claim-space" && !claimed {
						claimed = true
						e.claim("claim-space")
					}
					return c.SubResource(name).Patch(ctx, o, patch, opts...)
				},
			}), err
		}
	})
	e.spaceOn("claim", "claim-space")
	e.spaceIs("claim-space", "is claimed", func(s *v1alpha1.Space) bool { return s.Annotations[translate.AnnotationStore] != "" })
	e.place("claim", "claim-next")
	e.spaceIs("claim-space", "has no shard", func(s *v1alpha1.Space) bool {
		if s.Status.Shard != "" {
			t.Errorf("it is on %s", s.Status.Shard)
		}
		return true
	})
	if !claimed {
		t.Error("the operator did not try to place it")
	}
}

// S7: an operator that is killed at any of its writes, and started again, moves a space once.
func TestAnOperatorThatIsKilledMovesASpaceOnce(t *testing.T) {
	e := newEnv(t)
	e.shard("kill", "kill-0")
	e.shard("kill", "kill-1")
	for n := 1; n <= 4; n++ {
		for _, before := range []bool{true, false} {
			t.Run(fmt.Sprintf("killed at write %d, lost %v", n, before), func(t *testing.T) {
				e := &env{TB: t, WithWatch: e.WithWatch, host: e.host}
				name := strings.ToLower(fmt.Sprintf("kill-%d-%v", n, before))
				one := e.spaceOn("kill", name)
				one.Status.Shard = "kill-0"
				if err := e.Status().Update(t.Context(), one); err != nil {
					t.Fatal(err)
				}
				e.claim(name)
				e.ask(name, "")
				k := e.runKilled(n, before, 1)
				e.spaceIs(name, "moves", func(s *v1alpha1.Space) bool { return s.Status.MovingTo == "kill-1" })
				e.arrive(name)
				e.spaceIs(name, "stays, and is not asked to move", func(s *v1alpha1.Space) bool { return onShard("kill-1")(s) && !asked(s) })
				k.stop()
				if err := errors.Join(e.Delete(t.Context(), one)); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shards

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/operator/placement"
	"github.com/berth-dev/berth/platform/spaceobjects"
	"github.com/berth-dev/berth/translate"
)

var shared = sync.OnceValues(func() (*testhost.Host, error) {
	host, err := testhost.Start()
	if err != nil {
		return nil, err
	}
	objects, err := spaceobjects.Open(host.Config(), v1alpha1.DefaultPlatformName)
	if err == nil {
		err = objects.Define(context.Background())
	}
	return host, err
})

func TestMain(m *testing.M) { os.Exit(testhost.Main(m, shared)) }

// driven is a controller whose reconciles and whose clock are those of the test.
type driven struct {
	*testing.T
	client.WithWatch
	*reconciler
	clock    *testingclock.FakePassiveClock
	events   *events.FakeRecorder
	platform string
	versions int
	leases   []string
}

func drive(t *testing.T, platform string) *driven {
	t.Helper()
	host, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	known := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(known), corev1.AddToScheme(known)); err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(host.Config())
	config.QPS, config.ContentType, config.AcceptContentTypes = -1, "", ""
	c, err := client.NewWithWatch(config, client.Options{Scheme: known})
	if err != nil {
		t.Fatal(err)
	}
	testhost.Eventually(t, "the host serves the definitions", func(ctx context.Context) error { return c.List(ctx, &v1alpha1.ShardList{}) })
	d := &driven{T: t, WithWatch: c, clock: testingclock.NewFakePassiveClock(time.Unix(1000, 0)), events: events.NewFakeRecorder(100), platform: platform}
	d.reconciler = newReconciler(c, d.events, d.clock)
	if err := c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: platform}}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	return d
}

// shard creates a shard, which renews its Lease before each reconcile.
func (d *driven) shard(name string) {
	d.Helper()
	one := &v1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Namespace: d.platform, Name: name}, Spec: v1alpha1.ShardSpec{PlatformName: d.platform}}
	if err := d.Create(d.Context(), one); err != nil {
		d.Fatal(err)
	}
	one.Status.Conditions = []metav1.Condition{{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Serving", LastTransitionTime: metav1.Now()}}
	if err := d.Status().Update(d.Context(), one); err != nil {
		d.Fatal(err)
	}
	d.leases = append(d.leases, name)
}

// space creates a space that a shard has.
func (d *driven) space(name string, status v1alpha1.SpaceStatus, stored bool) {
	d.Helper()
	one := &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.SpaceSpec{PlatformName: d.platform}}
	if stored {
		one.Annotations = map[string]string{translate.AnnotationStore: "of-" + name}
	}
	if err := d.Create(d.Context(), one); err != nil {
		d.Fatal(err)
	}
	if status.Shard != "" {
		one.Status = status
		if err := d.Status().Update(d.Context(), one); err != nil {
			d.Fatal(err)
		}
	}
}

// after lets time pass, and reconciles.
func (d *driven) after(pass time.Duration) {
	d.Helper()
	d.clock.SetTime(d.clock.Now().Add(pass))
	for _, name := range d.leases {
		d.versions++
		one := lease(fmt.Sprint(d.versions), name, 4)
		one.Name = name
		d.liveness.note(one, false)
	}
	if _, err := d.Reconcile(d.Context(), platform(d.platform)); err != nil {
		d.Fatal(err)
	}
}

// moving returns where spaces move, and arrived lets them be there.
func (d *driven) moving(arrived bool) map[string]string {
	d.Helper()
	list := &v1alpha1.SpaceList{}
	if err := d.List(d.Context(), list); err != nil {
		d.Fatal(err)
	}
	to := map[string]string{}
	for i := range list.Items {
		one := &list.Items[i]
		if one.Spec.PlatformName != d.platform || one.Status.MovingTo == "" {
			continue
		}
		to[one.Name] = one.Status.MovingTo
		if one.Status.Shard, one.Status.MovingTo = one.Status.MovingTo, ""; arrived {
			if err := d.Status().Update(d.Context(), one); err != nil {
				d.Fatal(err)
			}
		}
	}
	return to
}

func (d *driven) get(name string) *v1alpha1.Space {
	d.Helper()
	one := &v1alpha1.Space{}
	if err := d.Get(d.Context(), client.ObjectKey{Name: name}, one); err != nil {
		d.Fatal(err)
	}
	return one
}

// T9: spaces move for balance, one a minute from a shard, and none twice within ten minutes, nor within ten minutes of the start.
func TestSpacesMoveForBalance(t *testing.T) {
	d := drive(t, "balance")
	for i := range 9 {
		d.space(fmt.Sprint("balance-", i), v1alpha1.SpaceStatus{Shard: "balance-a", State: v1alpha1.SpaceAsleep}, true)
	}
	d.shard("balance-a")
	d.shard("balance-b")
	d.after(0)
	d.after(placement.MoveInterval - time.Second)
	if to := d.moving(false); len(to) > 0 {
		t.Fatalf("within ten minutes of the start, %v move", to)
	}
	d.after(time.Second)
	first := d.moving(true)
	if len(first) != 1 || first["balance-0"] != "balance-b" {
		t.Fatalf("after that, %v move", first)
	}
	d.after(placement.BalanceInterval - time.Second)
	if to := d.moving(false); len(to) > 0 {
		t.Fatalf("within a minute, %v move", to)
	}
	d.after(time.Second)
	if to := d.moving(true); len(to) != 1 || to["balance-1"] != "balance-b" {
		t.Fatalf("after that, %v move", to)
	}
	d.after(placement.BalanceInterval)
	if to := d.moving(true); len(to) != 1 {
		t.Fatalf("nine spaces, of which two have moved: %v move", to)
	}
	d.after(placement.BalanceInterval)
	if to := d.moving(true); len(to) > 0 {
		t.Fatalf("six and three are balanced enough, but %v move", to)
	}
	// Now the other one is cordoned, empty of others, and drained: what moved before moves again.
	shard := &v1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Namespace: "balance", Name: "balance-b"}}
	if err := d.Get(t.Context(), client.ObjectKeyFromObject(shard), shard); err != nil {
		t.Fatal(err)
	}
	shard.Spec.Drain = ptr.To(true)
	if err := d.Update(t.Context(), shard); err != nil {
		t.Fatal(err)
	}
	d.after(time.Second)
	if to := d.moving(true); len(to) != 2 {
		t.Fatalf("of a drained shard, %v move", to)
	}
}

// T9: what a lost shard was to get goes elsewhere after a minute, and what it has stays.
func TestALostShardKeepsWhatItHas(t *testing.T) {
	d := drive(t, "lost")
	d.shard("lost-a")
	d.shard("lost-b")
	d.space("lost-moving", v1alpha1.SpaceStatus{Shard: "lost-a", MovingTo: "lost-b", State: v1alpha1.SpaceRunning}, true)
	d.space("lost-new", v1alpha1.SpaceStatus{Shard: "lost-b"}, false)
	d.space("lost-there", v1alpha1.SpaceStatus{Shard: "lost-b", State: v1alpha1.SpaceRunning}, true)
	d.after(0)
	d.leases = []string{"lost-a"}
	d.after(5 * time.Second) // from now on, it is known that the other isn't ready
	d.after(lostAfter - time.Second)
	if moving, fresh := d.get("lost-moving"), d.get("lost-new"); moving.Status.MovingTo != "lost-b" || fresh.Status.Shard != "lost-b" {
		t.Errorf("within a minute, they are on %+v and %+v", moving.Status, fresh.Status)
	}
	d.after(time.Second)
	moving, fresh, there := d.get("lost-moving"), d.get("lost-new"), d.get("lost-there")
	if moving.Status.MovingTo != "" || moving.Status.Shard != "lost-a" || fresh.Status.Shard != "lost-a" || there.Status.Shard != "lost-b" || there.Status.MovingTo != "" {
		t.Errorf("after a minute, they are on %+v, %+v, and %+v", moving.Status, fresh.Status, there.Status)
	}
	if event := <-d.events.Events; event != "Warning MoveRefused the move to shard lost-b is withdrawn, because that shard isn't ready; the space stays on lost-a" {
		t.Errorf("the event says %q", event)
	}
}

// T9, D4: spaces with stores in a database server fail over when their shard is dead, a bounded number a second. Those with a file, those
// that are being deleted, and dedicated ones of shards that run them on their machine wait for their shard.
func TestSpacesWithStoresInAServerFailOver(t *testing.T) {
	d := drive(t, "failing")
	d.shard("failing-a")
	d.shard("failing-b")
	in := func(name string, kind v1alpha1.StoreType, isolation v1alpha1.Isolation) {
		one := &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{translate.AnnotationStore: "of-" + name}, Finalizers: []string{"example.com/kept"}}}
		one.Spec = v1alpha1.SpaceSpec{PlatformName: "failing", Store: v1alpha1.Store{Type: kind}}
		if kind != v1alpha1.StoreSQLite {
			one.Spec.Store.SecretName = "s"
		}
		if err := d.Create(d.Context(), one); err != nil {
			t.Fatal(err)
		}
		one.Status = v1alpha1.SpaceStatus{Shard: "failing-a", State: v1alpha1.SpaceRunning, Isolation: isolation}
		if err := d.Status().Update(d.Context(), one); err != nil {
			t.Fatal(err)
		}
	}
	const many = maxFailovers + 10
	for i := range many {
		in(fmt.Sprint("failing-", i), v1alpha1.StorePostgreSQL, v1alpha1.Shared)
	}
	in("failing-file", v1alpha1.StoreSQLite, v1alpha1.Shared)
	in("failing-dedicated", v1alpha1.StoreMySQL, v1alpha1.Dedicated)
	in("failing-deleted", v1alpha1.StoreMySQL, v1alpha1.Shared)
	if err := d.Delete(t.Context(), d.get("failing-deleted")); err != nil {
		t.Fatal(err)
	}
	on := func(shard string) (n int) {
		list := &v1alpha1.SpaceList{}
		if err := d.List(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			if list.Items[i].Spec.PlatformName == "failing" && list.Items[i].Status.Shard == shard {
				n++
			}
		}
		return n
	}
	d.after(0)
	d.leases = []string{"failing-b"}
	for range 3 {
		d.after(time.Second)
	}
	if n := on("failing-b"); n > 0 {
		t.Fatalf("%d spaces failed over before the Lease ended", n)
	}
	d.after(time.Second)
	d.after(0)
	if n := on("failing-b"); n != maxFailovers {
		t.Errorf("%d spaces failed over in the first second, want %d", n, maxFailovers)
	}
	d.after(time.Second)
	d.after(time.Second)
	if n, stay := on("failing-b"), on("failing-a"); n != many || stay != 3 {
		t.Errorf("%d spaces failed over, and %d stay, want %d and 3", n, stay, many)
	}
	for _, name := range []string{"failing-file", "failing-dedicated", "failing-deleted"} {
		if at := d.get(name).Status.Shard; at != "failing-a" {
			t.Errorf("%s is on %s", name, at)
		}
	}
	for _, name := range []string{"failing-a", "failing-b"} {
		one := &v1alpha1.Shard{ObjectMeta: metav1.ObjectMeta{Namespace: d.platform, Name: name}}
		if err := d.Status().Patch(d.Context(), one, client.RawPatch(types.MergePatchType, []byte(`{"status":{"dedicatedMax":1}}`))); err != nil {
			t.Fatal(err)
		}
	}
	d.after(time.Second)
	if at := d.get("failing-dedicated").Status.Shard; at != "failing-b" {
		t.Errorf("a dedicated space with a pod is on %s", at)
	}
	if event := <-d.events.Events; event != "Warning FailedOver shard failing-a is dead; shard failing-b serves the space, whose store is in a database server" {
		t.Errorf("the event says %q", event)
	}
}

// D2: a cache that is behind changes no decision, and is counted with what was written.
func TestACacheThatIsBehindChangesNothing(t *testing.T) {
	d := drive(t, "behind")
	d.shard("behind-a")
	d.shard("behind-b")
	for i := range 4 {
		d.space(fmt.Sprint("behind-", i), v1alpha1.SpaceStatus{}, false)
	}
	before, writes := &v1alpha1.SpaceList{}, 0
	if err := d.List(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	d.client = interceptor.NewClient(d.WithWatch, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if spaces, ok := list.(*v1alpha1.SpaceList); ok {
				before.DeepCopyInto(spaces)
				return nil
			}
			return c.List(ctx, list, opts...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, name string, o client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
			writes++
			return c.SubResource(name).Patch(ctx, o, patch, opts...)
		},
	})
	d.after(0)
	d.after(time.Second)
	d.after(time.Second)
	if writes != 4 {
		t.Errorf("%d writes for four spaces", writes)
	}
	d.space("behind-late", v1alpha1.SpaceStatus{}, false)
	late := d.get("behind-late")
	before.Items = append(before.Items, *late)
	d.after(time.Second)
	of := map[string]int{}
	for _, name := range []string{"behind-0", "behind-1", "behind-2", "behind-3", "behind-late"} {
		of[d.get(name).Status.Shard]++
	}
	if of["behind-a"] != 3 || of["behind-b"] != 2 {
		t.Errorf("they are on %v", of)
	}
}

// A platform without shards claims its spaces by itself, and a space that waits is told of once.
func TestWithoutShardsNothingHappens(t *testing.T) {
	d := drive(t, "none")
	d.space("none-new", v1alpha1.SpaceStatus{}, false)
	d.after(0)
	if len(d.events.Events) > 0 || d.get("none-new").Status.Shard != "" {
		t.Error("something happens")
	}
	d.shard("none-a")
	d.leases = nil
	d.after(0)
	d.after(time.Second)
	if len(d.events.Events) != 1 {
		t.Errorf("%d events about a space that waits", len(d.events.Events))
	}
	if event := <-d.events.Events; event != "Warning NoShard no shard can take the space: 1 not ready (check the pods of the platform)" {
		t.Errorf("the event says %q", event)
	}
}

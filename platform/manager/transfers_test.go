// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/testtokens"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/hostaccess"
	"github.com/berth-dev/berth/platform/operations"
	"github.com/berth-dev/berth/platform/pod"
	"github.com/berth-dev/berth/platform/spaceobjects"
	"github.com/berth-dev/berth/snapshot"
	"github.com/berth-dev/berth/vcluster/pki"
)

// takeAll takes all transfers that may be done at once, as pods do that hand out their stores as slowly as they may.
func takeAll(t *testing.T, m *Manager) (end func()) {
	t.Helper()
	var ends []func()
	for i := range operations.MostTransfers {
		end, err := m.transfers.Begin(fmt.Sprintf("slow-%d", i))
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, end)
	}
	return func() {
		for _, end := range ends {
			end()
		}
	}
}

// S3, L3: spaces whose stores are in slow pods leave reconcilers for all other spaces: a deletion that has to wait for its
// store returns at once, and its status names the remedy.
func TestADeletionDoesNotWaitForTheStoresOfOthers(t *testing.T) {
	if operations.MostTransfers >= spaceobjects.Reconcilers {
		t.Fatalf("%d transfers at once hold all of %d reconcilers", operations.MostTransfers, spaceobjects.Reconcilers)
	}
	m := newMovable(t)
	before := &applied{Spec: v1alpha1.SpaceSpec{Isolation: v1alpha1.Dedicated}}
	if err := errors.Join(m.moveStoreToPod(t.Context(), "moved", m.pod), before.write(datadir.Space(m.config.DataDir, "moved"))); err != nil {
		t.Fatal(err)
	}
	m.pods = &dedicatedPods{}
	end := takeAll(t, m.Manager)
	d := &deletion{policy: v1alpha1.DeletionRetain}
	for i := range 3 {
		left, err := m.fetchStoreToDelete(t.Context(), "moved", d)
		if err != nil || !strings.Contains(left, giveUp) {
			t.Errorf("try %d: it waits for %q (%v)", i, left, err)
		}
		if waits := strings.Contains(left, operations.ErrTransfers.Error()); waits != (i%2 == 1) { // the status says so again before it begins
			t.Errorf("try %d: it waits for %q", i, left)
		}
	}
	if snapshot.IsReceived(datadir.Space(m.config.DataDir, "moved")) {
		t.Error("a store that was not asked for is marked as received")
	}
	end()
	m.pods = nil
	if _, err := m.fetchStoreToDelete(t.Context(), "moved", d); !errors.Is(err, errNoPods) || strings.Contains(err.Error(), giveUp) {
		t.Errorf("on a platform without pods, which can't delete the store either: %v", err)
	}
	takeAll(t, m.Manager)() // it has given its place back
}

// S3: a pod that fails to hand out its store is asked for it again after a pause that grows, and holds up no other meanwhile.
func TestAFailedTransferIsFollowedByAPause(t *testing.T) {
	m := newMovable(t)
	before := &applied{Spec: v1alpha1.SpaceSpec{Isolation: v1alpha1.Dedicated}}
	if err := errors.Join(m.moveStoreToPod(t.Context(), "moved", m.pod), before.write(datadir.Space(m.config.DataDir, "moved"))); err != nil {
		t.Fatal(err)
	}
	tries := 0
	m.pods = &dedicatedPods{}
	m.env = Environment{Endpoint: func(space string) string { return "https://berth/spaces/" + space }}
	m.access = hostaccess.New(nil, func() (*clientcmdapi.Cluster, error) { tries++; return nil, errors.New("the pod is not to be had") }, clock.RealClock{})
	d, err := m.deletions.begin("moved", func() (func(), error) { return func() {}, nil })
	if err != nil {
		t.Fatal(err)
	}
	d.policy, d.announced = v1alpha1.DeletionRetain, true
	if _, err := m.fetchStoreToDelete(t.Context(), "moved", d); err == nil {
		t.Fatal("it did not fail")
	}
	for range 3 {
		left, err := m.fetchStoreToDelete(t.Context(), "moved", d)
		if err != nil || !strings.Contains(left, "not to be had; Berth tries again at ") || !strings.Contains(left, giveUp) {
			t.Errorf("after a failure: %q (%v)", left, err)
		}
	}
	if tries != 1 {
		t.Errorf("it was tried %d times at once", tries)
	}
	first := time.Until(d.fetchAfter)
	d.fetchAfter = time.Time{}
	if _, err := m.fetchStoreToDelete(t.Context(), "moved", d); err == nil || time.Until(d.fetchAfter) <= first {
		t.Errorf("after the next failure (%v), the pause is %s, and was %s", err, time.Until(d.fetchAfter), first)
	}
	takeAll(t, m.Manager)()
}

// S3: a restore that a dedicated space's process does holds up no restore of another space.
func TestARestoreInASlowPodHoldsUpNoOther(t *testing.T) {
	var all operations.Transfers
	s := &snapshots{transfers: &all, elsewhere: func(space string) dedicatedSpace {
		if strings.HasPrefix(space, "slow") {
			return slowSpace{}
		}
		return nil
	}}
	for i := range operations.MostTransfers {
		if _, err := s.take(fmt.Sprintf("slow-%d", i)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := s.take("slow"); !errors.Is(err, operations.ErrTransfers) || !strings.Contains(err.Error(), "try again") {
		t.Errorf("one too many: %v", err)
	}
	end, err := s.take("shared")
	if err != nil {
		t.Fatalf("beside restores in pods: %v", err)
	}
	if _, err := s.take("shared-too"); err == nil || !strings.Contains(err.Error(), "try again") {
		t.Errorf("two at once in this process: %v", err)
	}
	end()
	if _, err := s.take("shared-too"); err != nil {
		t.Errorf("after the first: %v", err)
	}
}

type slowSpace struct{ dedicatedSpace }

// S3, X6: while the pod of a space dribbles its store, the admin can give the store up, or leave it where it is.
func TestAStoreThatAPodDoesNotHandOutIsGivenUp(t *testing.T) {
	cluster, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	m := &Manager{logger: klog.Background()}
	if err := m.config.Options.Complete(); err != nil {
		t.Fatal(err)
	}
	if m.objects, err = spaceobjects.Open(cluster.Config(), "given-up"); err != nil {
		t.Fatal(err)
	}
	if err := m.objects.Define(t.Context()); err != nil {
		t.Fatal(err)
	}
	unwatch, err := m.objects.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer unwatch()
	seen := make(chan struct{}, 100)
	defer m.objects.Run(t.Context(), func(context.Context, string) (time.Duration, error) { seen <- struct{}{}; return 0, nil }, func(string, error) {})()
	to := func(change func(*v1alpha1.Space)) func(*v1alpha1.Space) error {
		return func(object *v1alpha1.Space) error {
			before := object.DeepCopy()
			change(object)
			return m.objects.Client.Patch(t.Context(), object, client.MergeFrom(before))
		}
	}
	remove := func(object *v1alpha1.Space) error { return m.objects.Client.Delete(t.Context(), object) }
	for name, tc := range map[string]struct {
		before, change func(*v1alpha1.Space) error
		unwanted       func(*v1alpha1.Space) bool
	}{
		"a-deletion-gives-it-up":             {remove, to(func(s *v1alpha1.Space) { s.Spec.DeletionPolicy = v1alpha1.DeletionDelete }), givenUp},
		"a-space-that-is-to-move-is-deleted": {nil, remove, m.stays},
		"a-space-is-to-stay-after-all":       {nil, to(func(s *v1alpha1.Space) { s.Spec.Isolation = v1alpha1.Dedicated }), m.stays},
		"a-space-has-outgrown-its-share":     {nil, to(func(s *v1alpha1.Space) { s.Spec.DedicateAfterSeconds = ptr.To(int32(600)) }), m.stays},
	} {
		t.Run(name, func(t *testing.T) {
			object := &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: name, Finalizers: []string{v1alpha1.Finalizer}}}
			object.Spec.PlatformName, object.Spec.DeletionPolicy = "given-up", v1alpha1.DeletionRetain
			if err := m.objects.Client.Create(t.Context(), object); err != nil {
				t.Fatal(err)
			}
			defer func() {
				ctx := context.WithoutCancel(t.Context())
				if err := errors.Join(client.IgnoreNotFound(m.objects.Client.Delete(ctx, object)), m.objects.Release(ctx, object)); err != nil {
					t.Error(err)
				}
			}()
			if tc.before != nil {
				if err := tc.before(object); err != nil {
					t.Fatal(err)
				}
			}
			for m.objects.Get(name) == nil {
				<-seen
			}
			m.applied.set(name, &applied{Spec: v1alpha1.SpaceSpec{Isolation: v1alpha1.Dedicated}, Outgrown: true})
			transfer, stop := m.whileWanted(t.Context(), name, tc.unwanted)
			defer stop()
			if err := transfer.Err(); err != nil {
				t.Fatalf("before the admin says so: %v", err)
			}
			if err := tc.change(object); err != nil {
				t.Fatal(err)
			}
			select {
			case <-transfer.Done():
				if !errors.Is(context.Cause(transfer), errGivenUp) {
					t.Errorf("it ends with %v", context.Cause(transfer))
				}
			case <-time.After(time.Minute):
				t.Error("the transfer goes on")
			}
		})
	}
}

// S3, X6: an object that was created after the one of a deletion was removed by force has no say in that deletion.
func TestANewObjectDoesNotGiveUpTheStoreOfTheOneBefore(t *testing.T) {
	now := metav1.Now()
	for reason, tc := range map[string]struct {
		object *v1alpha1.Space
		want   bool
	}{
		"it was removed by force": {nil, false},
		"it is a new one":         {&v1alpha1.Space{Spec: v1alpha1.SpaceSpec{DeletionPolicy: v1alpha1.DeletionDelete}}, false},
		"it is being deleted":     {&v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}, Spec: v1alpha1.SpaceSpec{DeletionPolicy: v1alpha1.DeletionDelete}}, true},
		"it is to be retained":    {&v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &now}, Spec: v1alpha1.SpaceSpec{DeletionPolicy: v1alpha1.DeletionRetain}}, false},
	} {
		if got := givenUp(tc.object); got != tc.want {
			t.Errorf("%s: got %t", reason, got)
		}
	}
}

// S3: a move that has to wait for the stores of others changes nothing, and the space is served as before.
func TestAMoveThatWaitsForOthersLeavesTheSpaceReady(t *testing.T) {
	ready := withFailure(metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: string(v1alpha1.SpaceRunning)}, errStaysDedicated)
	if ready.Status != metav1.ConditionTrue || ready.Reason != string(v1alpha1.SpaceRunning) || !strings.Contains(ready.Message, errStaysDedicated.Error()) {
		t.Errorf("got %+v", ready)
	}
	failing := withFailure(metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Message: "ImagePullBackOff"}, errStaysDedicated)
	if !strings.Contains(failing.Message, "ImagePullBackOff") || !strings.Contains(failing.Message, errStaysDedicated.Error()) {
		t.Errorf("of a space that is not ready: %+v", failing)
	}
	m := newMovable(t)
	m.pods = &dedicatedPods{}
	before := &applied{Generation: 1, Spec: v1alpha1.SpaceSpec{Isolation: v1alpha1.Dedicated}}
	m.applied.set("moved", before)
	m.processes.add("moved", m.pod, 1)
	if err := m.moveStoreToPod(t.Context(), "moved", m.pod); err != nil {
		t.Fatal(err)
	}
	end := takeAll(t, m.Manager)
	object := &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: "moved", Generation: 2, Annotations: map[string]string{v1alpha1.AnnotationTrustDedicated: "true"}}}
	if err := m.change(t.Context(), object); !errors.Is(err, operations.ErrTransfers) || !errors.Is(err, errStaysDedicated) {
		t.Errorf("beside others: %v", err)
	}
	end()
	object.Annotations = nil
	if err := m.change(t.Context(), object); !errors.Is(err, errUntrusted) || !errors.Is(err, errStaysDedicated) {
		t.Errorf("without the admin's trust: %v", err)
	}
	if now := m.applied.get("moved"); now != before || now.partly {
		t.Errorf("it runs with %+v", now)
	}
	// The rest of a new spec takes effect, also after a crash at the first step.
	unprepared := errors.New("the host does not answer")
	m.prepare = func(context.Context, string) error { return unprepared }
	quota := corev1.ResourceList{corev1.ResourcePods: resource.MustParse("7")}
	object.Spec.Quota = quota
	if err := m.change(t.Context(), object); !errors.Is(err, unprepared) {
		t.Errorf("with a new quota: %v", err)
	}
	written, err := readApplied(datadir.Space(m.config.DataDir, "moved"))
	if err != nil || written == nil || written.Spec.Isolation != v1alpha1.Dedicated || written.Generation != 1 || !equality.Semantic.DeepEqual(corev1.ResourceList(written.Spec.Quota), quota) {
		t.Errorf("the space is to run with %+v (%v)", written, err)
	}
	takeAll(t, m.Manager)() // it has taken no place
}

// S3: the pod of a space that is being deleted gets no token of the host after the one that it has: whoever has taken it
// over could make the deletion last.
func TestAPodOfADeletedSpaceGetsNoOtherToken(t *testing.T) {
	m := newMovable(t)
	host := testtokens.New()
	m.access = hostaccess.New(host.Client(t), func() (*clientcmdapi.Cluster, error) { return &clientcmdapi.Cluster{Server: "https://host"}, nil }, host.Clock)
	ca, err := pki.OpenCA(t.TempDir(), "test")
	if err != nil {
		t.Fatal(err)
	}
	m.env = Environment{CA: ca, Endpoint: func(space string) string { return "https://berth/spaces/" + space }}
	m.pods = &dedicatedPods{ca: ca, client: pod.NewClientCertificate(ca, clock.RealClock{}), Pods: &pod.Pods{Template: &appsv1.StatefulSet{}}}
	if err := os.MkdirAll(datadir.Dedicated(m.config.DataDir, "moved"), 0o700); err != nil {
		t.Fatal(err)
	}
	token := func() string {
		host.Clock.Step(2 * time.Hour)
		files, _, err := m.podFiles(t.Context(), "moved", v1alpha1.SpaceSpec{})
		if err != nil {
			t.Fatal(err)
		}
		return string(files[hostaccess.TokenFile])
	}
	if first, second := token(), token(); first == second {
		t.Fatalf("a token that has expired is not renewed: %s", second)
	}
	if _, err := m.deletions.begin("moved", func() (func(), error) { return func() {}, nil }); err != nil {
		t.Fatal(err)
	}
	if last := token(); last != "token-2" {
		t.Errorf("during the deletion, the pod gets %s", last)
	}
}

// S3: a move that fails, which stops the space each time, is tried again after a pause that grows, or when the admin has changed
// the object. The space stays ready.
func TestAMoveThatFailsIsFollowedByAPause(t *testing.T) {
	m := newMovable(t)
	m.pods = &dedicatedPods{}
	m.env = Environment{Endpoint: func(space string) string { return "https://berth/spaces/" + space }}
	m.access = hostaccess.New(nil, func() (*clientcmdapi.Cluster, error) { return nil, errors.New("the pod is not to be had") }, clock.RealClock{})
	if err := m.moveStoreToPod(t.Context(), "moved", m.pod); err != nil {
		t.Fatal(err)
	}
	object := &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: "moved", Generation: 2, Annotations: map[string]string{v1alpha1.AnnotationTrustDedicated: "true"}}}
	if err := m.moveStoreFromPod(t.Context(), object, v1alpha1.SpaceSpec{}); !errors.Is(err, errStaysDedicated) {
		t.Fatalf("the move: %v", err)
	}
	if _, err := m.beginToShare(object); err == nil || !strings.Contains(err.Error(), "not to be had; Berth tries again at ") {
		t.Errorf("after a failure: %v", err)
	}
	first := m.failedMoves.Pause("moved")
	m.failedMoves.Note("moved", wishOf(object), errors.New("once more"))
	if next := m.failedMoves.Pause("moved"); next <= first {
		t.Errorf("the pause is %s, and was %s", next, first)
	}
	changed := object.DeepCopy()
	changed.Generation++
	end, err := m.beginToShare(changed)
	if err != nil {
		t.Fatalf("after a change of the object: %v", err)
	}
	end()
}

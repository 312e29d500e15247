// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/translate"
)

// bounded waits until the syncer has done all it can, and expects so many on the host.
func (env *testEnv) bounded(t *testing.T, want int, count func(context.Context) (int, error)) {
	t.Helper()
	testhost.Eventually(t, fmt.Sprintf("see %d on the host", want), func(ctx context.Context) error {
		n, err := count(ctx)
		if err != nil {
			return err
		}
		if n > want {
			t.Fatalf("%d are on the host, more than the %d that a space may have", n, want)
		}
		if n < want || !env.run.syncer.Idle() {
			return fmt.Errorf("%d are on the host, the syncer is idle: %t", n, env.run.syncer.Idle())
		}
		return nil
	})
	if n, err := count(t.Context()); err != nil || n != want {
		t.Errorf("%d are on the host in the end (%v), want %d", n, err, want)
	}
}

// M4: a space has no more classes of its own on the host than it may, though all
// come at once; those beyond the bound get an event, and come when others are gone.
func TestASpaceHasSoManyClassesOfItsOwn(t *testing.T) {
	t.Parallel()
	env := withExportedClasses(t, "many-classes")
	ours, theirs := env.virtual.SchedulingV1().PriorityClasses(), env.host.SchedulingV1().PriorityClasses()
	count := func(ctx context.Context) (int, error) {
		all, err := theirs.List(ctx, metav1.ListOptions{LabelSelector: translate.LabelSpace + "=" + env.space.Name})
		if err != nil {
			return 0, err
		}
		return len(all.Items), nil
	}
	for i := range bounds.ExportedClasses.Max() {
		must(t, ours.Create, priorityClass(fmt.Sprintf("c-%d", i), 1))
		pod := newPod(fmt.Sprintf("p-%d", i)) // makes it as well
		pod.Spec.PriorityClassName = fmt.Sprintf("c-%d", i)
		testhost.Eventually(t, "have the space's admission know its class", func(ctx context.Context) error {
			_, err := env.virtual.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
			return err
		})
	}
	env.bounded(t, bounds.ExportedClasses.Max(), count)
	for round := range 2 { // deleted ones no longer count
		name := fmt.Sprintf("more-%d", round)
		must(t, ours.Create, priorityClass(name, 1))
		env.awaitWarning(t, "PriorityClass", name, "20 classes")
		if err := ours.Delete(t.Context(), fmt.Sprintf("c-%d", round), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		awaited(t, "see the other one", theirs.Get, "many-classes."+name, nil)
		env.bounded(t, bounds.ExportedClasses.Max(), count)
	}
	if err := env.kill(); err != nil {
		t.Fatal(err)
	}
	for i := range bounds.ExportedClasses.Max() {
		must(t, ours.Create, priorityClass(fmt.Sprintf("burst-%d", i), 1))
		if name := fmt.Sprintf("c-%d", i); i > 1 {
			if err := ours.Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
	}
	env.begin(nil)
	env.bounded(t, bounds.ExportedClasses.Max(), count)
}

// M4: so it is with volume snapshots, and those that come in one burst.
func TestASpaceHasSoManySnapshots(t *testing.T) {
	t.Parallel()
	host := extended(t, theHost(t).Config())
	define(t, host)
	snapshotClass(t, host, "many-snaps", "host.example/other", false, map[string]string{"many-snaps": "true"})
	env := synced(t, "many-snaps", "volumesnapshots=on", "volumesnapshotclasses=many-snaps=true")
	if err := isolation.Apply(t.Context(), host, env.space, nil, isolation.Syncing(env.options.Sync)); err != nil {
		t.Fatal(err)
	}
	space := extended(t, env.toPlane())
	testhost.Eventually(t, "have the kind", func(ctx context.Context) error {
		return space.List(ctx, &snapshotv1.VolumeSnapshotList{})
	})
	if err := env.kill(); err != nil {
		t.Fatal(err)
	}
	for i := range bounds.VolumeSnapshots.Max() + 20 {
		v := snapshotOf(fmt.Sprintf("s-%d", i), "data", "many-snaps")
		if err := space.Create(t.Context(), v); err != nil {
			t.Fatal(err)
		}
	}
	env.begin(nil) // which finds all of them at once
	env.bounded(t, bounds.VolumeSnapshots.Max(), func(ctx context.Context) (int, error) {
		all := &snapshotv1.VolumeSnapshotList{}
		err := host.List(ctx, all, client.InNamespace(env.space.HostNamespace()))
		return len(all.Items), err
	})
	testhost.Eventually(t, "hear of those that are too many", func(ctx context.Context) error {
		events, err := env.virtual.CoreV1().Events("default").List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		told := map[string]bool{}
		for _, e := range events.Items {
			if e.InvolvedObject.Kind == "VolumeSnapshot" {
				told[e.InvolvedObject.Name] = true
			}
		}
		if len(told) != 20 {
			return errors.New(fmt.Sprint(len(told), " were told"))
		}
		return nil
	})
}

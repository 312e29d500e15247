// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// C5: a definition that an earlier version of Berth copied is the tenant's own once the tenant has taken its label away, such as by Helm. Its
// objects are hidden then, and the host keeps what was made of them: it may be the only copy of their data. It goes with the object.
func TestTheHostKeepsWhatAHiddenObjectHas(t *testing.T) {
	t.Parallel()
	const name = "snap-taken"
	ctx := t.Context()
	env, host, space := snapshotEnv(t, name)
	env.copyDefinitions(t, space)
	v, onHost, before := env.snapshotInNamespace(t, host, space)
	taken := snapshotDefinition("volumesnapshots")
	if err := space.Patch(ctx, taken, client.RawPatch("application/merge-patch+json", []byte(`{"metadata":{"labels":{"app.kubernetes.io/managed-by":"Helm"}}}`))); err != nil {
		t.Fatal(err)
	}

	env.serveSynced(t)
	env.begin(nil)
	inForce := snapshotDefinition("volumesnapshots")
	if err := established(ctx, space, inForce); err != nil || !definitions.IsShared(inForce) {
		t.Fatalf("the definition in force is %v (%v)", inForce.ObjectMeta, err)
	}
	after := &snapshotv1.VolumeSnapshot{}
	if err := space.Get(ctx, client.ObjectKeyFromObject(v), after); !apierrors.IsNotFound(err) {
		t.Errorf("the platform's definition serves the tenant's object: %v", err)
	}
	env.idle(t)
	if err := host.Get(ctx, onHost, after); err != nil || after.UID != before.UID || after.DeletionTimestamp != nil {
		t.Errorf("the host's snapshot of a hidden object was %s, and is %v (%v)", before.UID, after.ObjectMeta, err)
	}

	if err := env.virtual.CoreV1().Namespaces().Delete(ctx, v.Namespace, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitedGone(t, "the snapshot on the host", func(ctx context.Context, name string, _ metav1.GetOptions) (*snapshotv1.VolumeSnapshot, error) {
		h := &snapshotv1.VolumeSnapshot{}
		return h, host.Get(ctx, client.ObjectKey{Namespace: onHost.Namespace, Name: name}, h)
	}, onHost.Name)
}

// snapshotInNamespace returns a snapshot in a namespace of its own, and that of the host, and ends the syncer.
func (env *testEnv) snapshotInNamespace(t *testing.T, host, space client.Client) (v *snapshotv1.VolumeSnapshot, onHost client.ObjectKey, h *snapshotv1.VolumeSnapshot) {
	t.Helper()
	env.begin(nil)
	class := env.space.Name + "-imported"
	testhost.Eventually(t, "see the class", func(ctx context.Context) error {
		return space.Get(ctx, client.ObjectKey{Name: class}, &snapshotv1.VolumeSnapshotClass{})
	})
	namespace := must(t, env.virtual.CoreV1().Namespaces().Create, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "data"}}).Name
	must(t, env.virtual.CoreV1().PersistentVolumeClaims(namespace).Create, newClaim("data"))
	v, h = snapshotOf("nightly", "data", class), &snapshotv1.VolumeSnapshot{}
	v.Namespace = namespace
	Served(t, space, v)
	onHost = client.ObjectKey{Namespace: env.space.HostNamespace(), Name: env.space.HostName(namespace, v.Name, translate.LimitSubdomain)}
	testhost.Eventually(t, "see it on the host", func(ctx context.Context) error { return host.Get(ctx, onHost, h) })
	env.idle(t)
	if err := env.kill(); err != nil {
		t.Fatal(err)
	}
	return v, onHost, h
}

// C5, S1: the host keeps the snapshots of a space whose sync is disabled, and they are those of the space's objects when it is enabled again.
func TestTheHostKeepsSnapshotsWhileTheirSyncIsOff(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	env, host, space := snapshotEnv(t, "snap-pause")
	env.serveSynced(t)
	v, onHost, before := env.snapshotInNamespace(t, host, space)
	kept := func(when string) {
		t.Helper()
		env.begin(nil)
		env.idle(t)
		if err := env.kill(); err != nil {
			t.Fatal(err)
		}
		after := &snapshotv1.VolumeSnapshot{}
		if err := host.Get(ctx, onHost, after); err != nil || after.UID != before.UID || after.DeletionTimestamp != nil {
			t.Errorf("%s, the host's snapshot was %s, and is %v (%v)", when, before.UID, after.ObjectMeta, err)
		}
	}
	forced := env.config.Definitions
	off := resources.SyncOptions{}
	env.restart(t, func() { env.config.Definitions, env.sync = nil, &off })
	kept("while the sync is off")
	env.restart(t, func() { env.config.Definitions, env.sync = forced, nil })
	kept("when the sync is on again")
	is := &snapshotv1.VolumeSnapshot{}
	if err := space.Get(ctx, client.ObjectKeyFromObject(v), is); err != nil || is.UID != v.UID {
		t.Errorf("the space's snapshot was %s, and is %v (%v)", v.UID, is.ObjectMeta, err)
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/internal/testhost"
)

// snapshotClass makes a class of the host's.
func snapshotClass(t *testing.T, host client.Client, name, driver string, isDefault bool, labels map[string]string) *snapshotv1.VolumeSnapshotClass {
	t.Helper()
	class := &snapshotv1.VolumeSnapshotClass{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Driver: driver, DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
	}
	if isDefault {
		class.Annotations = map[string]string{"snapshot.storage.kubernetes.io/is-default-class": "true"}
	}
	testhost.Eventually(t, "make a class", func(ctx context.Context) error { return host.Create(ctx, class) }) // discovery lags
	t.Cleanup(func() { _ = host.Delete(context.Background(), class) })
	return class
}

// M4, N1: a snapshot that names no class gets none that is not imported, be it the
// host's default. It gets the default one of the imported ones, if that is of
// its volume's driver.
func TestASnapshotWithoutAClassGetsNoneThatIsNotShown(t *testing.T) {
	t.Parallel()
	host := extended(t, theHost(t).Config())
	define(t, host)
	ours := map[string]string{"snapdef": "true"}
	snapshotClass(t, host, "snapdef-hidden", provisioner, true, nil)
	snapshotClass(t, host, "snapdef-named", provisioner, false, ours)
	snapshotClass(t, host, "snapdef-other", "host.example/other", true, ours)
	env := synced(t, "snapdef", "volumesnapshots=on", "volumesnapshotclasses=snapdef=true")
	space := extended(t, env.toPlane())
	// Any number of them wait, and each is tried again and again: not by asking the host.
	env.run.wire.obey(func(c call, send func() (*http.Response, error)) (*http.Response, error) {
		if c.to == toHost && c.Method == http.MethodGet && strings.Contains(c.URL.Path, "/persistentvolumes/") {
			return nil, errors.New("the host is asked for a volume that is watched")
		}
		return send()
	})
	without := func(name, claim string) *snapshotv1.VolumeSnapshot {
		v := snapshotOf(name, claim, "")
		v.Spec.VolumeSnapshotClassName = nil
		return v
	}
	onHost := func(ctx context.Context, name string) (*snapshotv1.VolumeSnapshot, error) {
		h := &snapshotv1.VolumeSnapshot{}
		return h, host.Get(ctx, client.ObjectKey{Namespace: env.space.HostNamespace(), Name: env.hostName(name)}, h)
	}
	Served(t, space, without("early", "missing"))
	env.awaitWarning(t, "VolumeSnapshot", "early", "spec.source.persistentVolumeClaimName", "no volume yet")
	must(t, env.virtual.CoreV1().PersistentVolumeClaims("default").Create, newClaim("data"))
	must(t, env.virtual.CoreV1().Pods("default").Create, newPod("user", "data")) // for which it is bound
	Served(t, space, without("nightly", "data"))
	env.awaitWarning(t, "VolumeSnapshot", "nightly", "spec.volumeSnapshotClassName", "no default class matches", "set a class")
	for _, name := range []string{"early", "nightly"} {
		if err := gone(onHost(t.Context(), name)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}

	// Once there is one, it gets that.
	snapshotClass(t, host, "snapdef-default", provisioner, true, ours)
	testhost.Eventually(t, "see it on the host", func(ctx context.Context) error {
		h, err := onHost(ctx, "nightly")
		if class := ptr.Deref(h.Spec.VolumeSnapshotClassName, ""); err == nil && class != "snapdef-default" {
			t.Fatalf("it is of class %q", class)
		}
		if err != nil {
			return fmt.Errorf("not yet: %w", err)
		}
		return nil
	})
}

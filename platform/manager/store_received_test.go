// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/snapshot"
)

// S3, T9: the store that a deletion took from a pod is not opened for a shared space before the admin trusts it and it has been
// checked, whatever the space was meanwhile.
func TestHostileAReceivedStoreNeedsTrustAndACheck(t *testing.T) {
	m := newMovable(t)
	dir := datadir.Space(m.config.DataDir, "moved")
	if err := snapshot.MarkReceived(dir); err != nil {
		t.Fatal(err)
	}
	object := &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: "moved"}}
	if _, err := m.run(t.Context(), object); !errors.Is(err, errUntrusted) || m.applied.get("moved") != nil {
		t.Errorf("without trust: %v", err)
	}
	if _, err := m.place(object); err == nil || !strings.Contains(err.Error(), "applied.json is missing") || m.applied.get("moved") != nil {
		t.Errorf("on another way to its place: %+v (%v)", m.applied.get("moved"), err)
	}
	path := filepath.Join(dir, "store.db")
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	write := func(store []byte) {
		t.Helper()
		if err := os.WriteFile(path, store, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	object.Annotations = map[string]string{v1alpha1.AnnotationTrustDedicated: "true"}
	write(sound[:len(sound)-100])
	if err := m.admitReceived(t.Context(), object); err == nil || !strings.Contains(err.Error(), "set spec.isolation to Dedicated") || !snapshot.IsReceived(dir) {
		t.Errorf("a damaged store: %v", err)
	}
	write(sound)
	if err := m.admitReceived(t.Context(), object); err == nil || !strings.Contains(err.Error(), "Berth tries again at ") {
		t.Errorf("at once after a failure: %v", err)
	}
	object.Generation++
	if err := m.admitReceived(t.Context(), object); err != nil || snapshot.IsReceived(dir) {
		t.Errorf("a sound store: %v", err)
	}
	if err := snapshot.MarkReceived(dir); err != nil {
		t.Fatal(err)
	}
	m.applied.set("moved", &applied{Spec: v1alpha1.SpaceSpec{Isolation: v1alpha1.Dedicated}})
	m.processes.add("moved", m.pod, 1)
	object.Annotations = nil
	if err := m.change(t.Context(), object); !errors.Is(err, errUntrusted) || !errors.Is(err, errStaysDedicated) {
		t.Errorf("while it is dedicated, and has not moved to its pod: %v", err)
	}
	if err := m.moveStoreToPod(t.Context(), "moved", m.pod); err != nil || snapshot.IsReceived(dir) {
		t.Errorf("after it went to a pod again, it is marked as received: %t (%v)", snapshot.IsReceived(dir), err)
	}
	if err := m.checkTrust(object); !errors.Is(err, errUntrusted) {
		t.Errorf("from that pod, without trust: %v", err)
	}
	if !m.stays(object) {
		t.Error("a move goes on without trust")
	}
	// A mark beside no store is of a space that never had one.
	object.Name = "new"
	empty := datadir.Space(m.config.DataDir, "new")
	if err := errors.Join(os.MkdirAll(empty, 0o700), snapshot.MarkReceived(empty), m.admitReceived(t.Context(), object)); err != nil || snapshot.IsReceived(empty) {
		t.Errorf("without a store: %v", err)
	}
}

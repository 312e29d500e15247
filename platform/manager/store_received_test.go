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
	if _, err := m.place(object); err != nil || m.applied.get("moved") != nil {
		t.Errorf("on another way to its place: %+v (%v)", m.applied.get("moved"), err)
	}
	m.processes.add("moved", m.pod, 1)
	m.applied.set("moved", &applied{Spec: v1alpha1.SpaceSpec{Isolation: v1alpha1.Dedicated}})
	if err := m.change(t.Context(), object); !errors.Is(err, errUntrusted) || !errors.Is(err, errStaysDedicated) {
		t.Errorf("while it is dedicated, and has not moved to its pod: %v", err)
	}
	object.Annotations = map[string]string{v1alpha1.AnnotationTrustDedicated: "true"}
	path := filepath.Join(dir, "store.db")
	sound, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, sound[:len(sound)-100], 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.admitReceived(t.Context(), object); err == nil || !strings.Contains(err.Error(), "set spec.isolation to Dedicated") || !snapshot.IsReceived(dir) {
		t.Errorf("a damaged store: %v", err)
	}
	if err := os.WriteFile(path, sound, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := m.admitReceived(t.Context(), object); err != nil || snapshot.IsReceived(dir) {
		t.Errorf("a sound store: %v", err)
	}
	if err := snapshot.MarkReceived(dir); err != nil {
		t.Fatal(err)
	}
	if err := m.moveStoreToPod(t.Context(), "moved", m.pod); err != nil || snapshot.IsReceived(dir) {
		t.Errorf("after it went to a pod again, it is marked as received: %t (%v)", snapshot.IsReceived(dir), err)
	}
	object.Annotations = nil
	if err := m.checkTrust(object); !errors.Is(err, errUntrusted) {
		t.Errorf("from that pod, without trust: %v", err)
	}
	if !m.stays(object) {
		t.Error("a move goes on without trust")
	}
}

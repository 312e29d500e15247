// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package stored_test

import (
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/berth-dev/berth/vcluster/stored"
)

// FuzzStored: whatever is stored, a look at it ends no process.
func FuzzStored(f *testing.F) {
	f.Add([]byte(`{"metadata":{"ownerReferences":[{}],"deletionTimestamp":"2026-01-01T00:00:00Z"}}`))
	f.Add([]byte("k8s\x00\n\x09\n\x02v1\x12\x03Pod\x12\x06\x0a\x04\x0a\x02ab\x1a\x00\"\x00"))
	now := metav1.Now()
	raw, err := (&corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Name: "p", DeletionTimestamp: &now, Finalizers: []string{metav1.FinalizerOrphanDependents},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u"}},
	}}).Marshal()
	if err != nil {
		f.Fatal(err)
	}
	value, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "Pod"}, Raw: raw}).Marshal()
	if err != nil {
		f.Fatal(err)
	}
	value = append([]byte(stored.ProtobufPrefix), value...)
	if !stored.Collectable(value) || !stored.Terminating(value) {
		f.Fatal("the seed is not what it is meant to be")
	}
	f.Add(value)
	f.Fuzz(func(_ *testing.T, value []byte) {
		_ = stored.EachField(value, func(protowire.Number, []byte) error { return nil })
		_, _, _ = stored.Collectable(value), stored.Terminating(value), stored.UnsettledRange(value, "example.com/finalizer")
	})
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import "testing"

// FuzzPeek: whatever is stored, a look at it ends no process.
func FuzzPeek(f *testing.F) {
	f.Add([]byte(`{"metadata":{"ownerReferences":[{}],"deletionTimestamp":"2026-01-01T00:00:00Z"}}`))
	f.Add([]byte("k8s\x00\n\x09\n\x02v1\x12\x03Pod\x12\x06\x0a\x04\x0a\x02ab\x1a\x00\"\x00"))
	f.Fuzz(func(_ *testing.T, value []byte) {
		_, _, _ = collectable(value), terminating(value), unsettledRange("", value)
		for _, d := range demands(nil) {
			for _, t := range d.writes {
				_ = t.matches(t.prefix+"a/b", value)
			}
		}
	})
}

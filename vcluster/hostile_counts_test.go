// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/bounds"
)

// L3 (S2): a page that the store reads in pieces says how many objects remain, or nothing of it, whatever cut it.
func TestHostilePagesOfLargeObjectsSayWhatRemains(t *testing.T) {
	_, p, config := bounded(t, bounds.Limits{bounds.MemoryBytes: 24 << 20}) // pieces of 3 MiB
	own := clientset(t, p.Loopback())
	makeLarge(t, own, 30)
	all, err := own.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	total, client := int64(len(all.Items)), clientset(t, config)
	counted := 0
	for _, limit := range []int64{3, 10, 14, 20, 25, 29, total} {
		seen, next := int64(0), ""
		for first := true; first || next != ""; first = false {
			page, err := client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{Limit: limit, Continue: next})
			if err != nil {
				t.Fatal(err)
			}
			seen += int64(len(page.Items))
			next = page.Continue
			if n := page.RemainingItemCount; n != nil {
				counted++
				if *n != total-seen {
					t.Errorf("pages of %d: %d remain after %d of %d", limit, *n, seen, total)
				}
			}
		}
		if seen != total {
			t.Errorf("pages of %d: %d objects of %d", limit, seen, total)
		}
	}
	if counted == 0 {
		t.Error("no page says how many objects remain")
	}
}

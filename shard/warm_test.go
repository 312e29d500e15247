// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/vcluster/pki"
)

// D5: a process is ready for its first space before that comes, and nothing is left of what made it ready, also if it ends meanwhile.
func TestWarmingUpLeavesNothing(t *testing.T) {
	ca, err := pki.OpenCA(t.TempDir(), "serving")
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "tmp")
	empty := func() {
		t.Helper()
		if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
			t.Errorf("left %v, %v", left, err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), testhost.Timeout)
	defer cancel()
	if err := shard.WarmUp(ctx, dir, ca.PEM(), klog.Background()); err != nil {
		t.Fatal(err)
	}
	empty()
	cancel()
	if err := shard.WarmUp(ctx, dir, ca.PEM(), klog.Background()); err == nil {
		t.Error("it warmed up though the process ends")
	}
	empty()
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"errors"
	"math"
	"os"
	"path/filepath"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/spacefiles"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/spaceprocess"
	"github.com/berth-dev/berth/snapshot"
)

// T9, D5: the limit of dedicated spaces is for new ones. A space whose pod exists would be served by nobody if others had taken its place while
// it moved.
func TestASpaceWhosePodExistsHasAPlace(t *testing.T) {
	m := &Manager{pods: &dedicatedPods{}}
	m.config.DataDir, m.config.DedicatedMax = t.TempDir(), 3
	if most := m.dedicatedMax("arrives"); most != 3 {
		t.Errorf("a new space gets its place among %d", most)
	}
	dir := datadir.Dedicated(m.config.DataDir, "arrives")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, spaceprocess.IncarnationFile), []byte("random"), 0o600); err != nil {
		t.Fatal(err)
	}
	if most := m.dedicatedMax("arrives"); most != math.MaxInt {
		t.Errorf("a space with a pod gets its place among %d", most)
	}
}

// D4, T8: a shard that gets a space back, whose store in a database server another shard has opened since, doesn't use the keys that it had: they
// may have been rotated. The number of moves doesn't tell, as a failover isn't one.
func TestADirectoryFromBeforeAFailoverIsNotCurrent(t *testing.T) {
	for name, test := range map[string]struct {
		epoch   int64
		current bool
	}{
		"its files are in the database":           {3, false},
		"its files may be in this directory only": {0, true},
	} {
		t.Run(name, func(t *testing.T) {
			m := &Manager{}
			m.config.DataDir = t.TempDir()
			dir := datadir.Space(m.config.DataDir, "back")
			if err := os.MkdirAll(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			if test.epoch > 0 {
				if err := spacefiles.WriteEpoch(dir, test.epoch); err != nil {
					t.Fatal(err)
				}
			}
			for _, moves := range []int64{0, 2} {
				if err := datadir.SetMoves(dir, moves); err != nil {
					t.Fatal(err)
				}
				object := &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: "back"}, Status: v1alpha1.SpaceStatus{Moves: ptr.To(moves)}}
				if !m.isCurrent(object) {
					t.Fatal("the directory isn't current before")
				}
				if err := outdate(dir); err != nil {
					t.Fatal(err)
				}
				if current := m.isCurrent(object); current != test.current {
					t.Errorf("after %d moves, it is current: %v", moves, current)
				}
			}
		})
	}
}

// S3, T9: a store that a pod has written, and nobody has trusted, isn't opened in the process that shared spaces have when it arrives from another
// shard.
func TestAStoreThatNobodyTrustsIsNotExaminedWhenItArrives(t *testing.T) {
	dir := t.TempDir()
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "store.db"), []byte("anything"), 0o600), snapshot.MarkReceived(dir)); err != nil {
		t.Fatal(err)
	}
	(&Manager{}).examineReceived(filepath.Join(dir, "store.db")) // by no shard, which would be a panic
}

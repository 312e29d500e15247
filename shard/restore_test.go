// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/snapshot"
)

// asleepAll shows a shard's spaces to a keeper of snapshots once they have stopped.
type asleepAll struct{ *shard.Shard }

func (asleepAll) Snapshot(context.Context, string, string) (bool, error) {
	return false, snapshot.ErrAsleep
}

func (asleepAll) Revision(string) int64 { return 0 }

// D1, D2: a space whose store is damaged, whether it noticed while it ran or can't
// be started any more, is stopped, replaced, and wakes as it was.
func TestASpaceWhoseStoreIsDamagedIsRestored(t *testing.T) {
	c := config(t)
	s := start(t, c)
	defer stop(t, s)
	const name = "damaged"
	store := filepath.Join(c.Dir, name, "store.db")
	keep := func(space *shard.Space, configMap string) {
		t.Helper()
		if _, err := virtual(t, space).CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: configMap}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	keep(startSpace(t, s, name), "kept")
	stopSpace(t, s, name)
	bucket, err := snapshot.Open("file://" + t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	keeper, err := snapshot.NewKeeper(snapshot.Config{Dir: c.Dir, Scratch: t.TempDir(), Spaces: asleepAll{s}, Logger: klog.Background()})
	if err != nil {
		t.Fatal(err)
	}
	info, err := keeper.Take(t.Context(), name, bucket)
	if err != nil {
		t.Fatal(err)
	}
	id, err := snapshot.ParseID(info.ID)
	if err != nil {
		t.Fatal(err)
	}
	wake := func() error {
		ctx, cancel := context.WithTimeout(t.Context(), testhost.Timeout)
		defer cancel()
		return s.Wake(ctx, name)
	}

	for reason, damage := range map[string]func(){
		"it can't be started": func() {
			if err := os.Truncate(store, 5000); err != nil {
				t.Fatal(err)
			}
			if err := s.Add(name); err != nil {
				t.Fatal(err)
			}
			if err := wake(); err == nil {
				t.Error("it woke with a damaged store")
			}
		},
		"it noticed while it ran": func() {
			if err := s.Add(name); err != nil {
				t.Fatal(err)
			}
			if err := wake(); err != nil {
				t.Fatal(err)
			}
			space := s.Space(name)
			keep(space, "later")
			if err := os.Truncate(store, 5000); err != nil {
				t.Fatal(err)
			}
			client := virtual(t, space)
			testhost.Eventually(t, "the damage is noticed", func(ctx context.Context) error {
				// What is read goes past the caches, and what is written to the file.
				_, _ = client.CoreV1().ConfigMaps("default").List(ctx, metav1.ListOptions{Limit: 1000})
				_, _ = client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "lost-"}}, metav1.CreateOptions{})
				if _, err := space.StoreStats(ctx); err == nil {
					return os.ErrInvalid
				}
				return nil
			})
		},
	} {
		damage()
		ctx, cancel := context.WithTimeout(context.Background(), testhost.Timeout)
		err := s.StopSpace(ctx, name)
		cancel()
		if _, has := s.Status(name); has {
			t.Fatalf("%s: it is not stopped: %v", reason, err)
		}
		if err := snapshot.Replace(t.Context(), bucket, id, c.Dir, t.TempDir()); err != nil {
			t.Fatalf("%s: %v", reason, err)
		}
		if err := s.Add(name); err != nil {
			t.Fatal(err)
		}
		if err := wake(); err != nil {
			t.Fatalf("%s: %v", reason, err)
		}
		list, err := virtual(t, s.Space(name)).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		found := false
		for _, got := range list.Items {
			found = found || got.Name == "kept"
			if got.Name == "later" {
				t.Errorf("%s: what came later is there", reason)
			}
		}
		if !found {
			t.Errorf("%s: what it held is not there", reason)
		}
		stopSpace(t, s, name)
	}
}

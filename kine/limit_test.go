// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine_test

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/kubernetes"

	"github.com/berth-dev/berth/kine"
)

func stats(t *testing.T, s *kine.Store) kine.Stats {
	t.Helper()
	out, err := s.Stats(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// fill writes until the store refuses to, and returns the revisions of what it took.
func fill(t *testing.T, s *kine.Store, prefix string, size int) map[string]int64 {
	t.Helper()
	revs := map[string]int64{}
	value := []byte(strings.Repeat("x", size))
	for i := 0; ; i++ {
		key := fmt.Sprintf("%s%d", prefix, i)
		resp, err := s.Client().Kubernetes.OptimisticPut(t.Context(), key, value, 0, kubernetes.PutOptions{GetOnFailure: true})
		if errors.Is(err, rpctypes.ErrNoSpace) {
			return revs
		}
		if err != nil || !resp.Succeeded || i > 10000 {
			t.Fatalf("write %d: %+v, %v", i, resp, err)
		}
		revs[key] = resp.Revision
	}
}

// D3: a store has a limit, says so, takes deletions, and then writes again and gives its space back.
func TestAFullStoreRefusesWritesUntilSomethingIsDeleted(t *testing.T) {
	onEach(t, testAFullStoreRefusesWritesUntilSomethingIsDeleted)
}

func testAFullStoreRefusesWritesUntilSomethingIsDeleted(t *testing.T, p place) {
	const limit = 8 << 20
	s := p.openWith(t, kine.Options{MaxBytes: limit})
	c := s.Client()
	kept := create(t, s, "/registry/kept", "1")
	revs := fill(t, s, "/registry/a/", 50<<10)
	if got := stats(t, s); !got.Full || got.MaxBytes != limit || got.UsedBytes > limit || got.UsedBytes < limit/10*8 {
		t.Errorf("stats of a full store: %+v", got)
	}
	large := []byte(strings.Repeat("x", 100<<10))
	if resp, err := c.Kubernetes.OptimisticPut(t.Context(), "/registry/kept", large, kept, kubernetes.PutOptions{GetOnFailure: true}); !errors.Is(err, rpctypes.ErrNoSpace) {
		t.Errorf("update = %+v, %v, want %v: a conflict would be tried again for ever", resp, err, rpctypes.ErrNoSpace)
	}
	if v := value(t, s, "/registry/kept"); v != "1" {
		t.Errorf("value = %q", v)
	}
	// As the API server's compactor does it.
	if resp, err := c.Txn(t.Context()).If(clientv3.Compare(clientv3.Version("compact_rev_key"), "=", 0)).
		Then(clientv3.OpPut("compact_rev_key", "0")).Else(clientv3.OpGet("compact_rev_key")).Commit(); err != nil || !resp.Succeeded {
		t.Errorf("compaction of a full store: %+v, %v", resp, err)
	}
	for key, rev := range revs {
		remove(t, s, key, rev)
	}
	until(t, func() bool {
		resp, err := c.Kubernetes.OptimisticPut(t.Context(), "/registry/b", large, 0, kubernetes.PutOptions{GetOnFailure: true})
		return err == nil && resp.Succeeded
	})
	if got := stats(t, s); got.Full || got.UsedBytes > limit {
		t.Errorf("stats after deletion: %+v", got)
	}
	if v := value(t, s, "/registry/kept"); v != "1" {
		t.Errorf("value = %q", v)
	}
	last := stats(t, s).Revision
	closeStore(t, s)
	if got := stats(t, p.openWith(t, kine.Options{MaxBytes: limit})).Revision; got != last {
		t.Errorf("revision is %d, was %d: that of the last deletion must not be compacted away", got, last)
	}
}

// What has been deleted is no reason to refuse: many objects are updated before they are deleted.
func TestAFullStoreTakesAWriteAsSoonAsSomethingIsDeleted(t *testing.T) {
	onEach(t, testAFullStoreTakesAWriteAsSoonAsSomethingIsDeleted)
}

func testAFullStoreTakesAWriteAsSoonAsSomethingIsDeleted(t *testing.T, p place) {
	s := p.openWith(t, kine.Options{MaxBytes: 4 << 20})
	revs := fill(t, s, "/registry/a/", 100<<10)
	for key, rev := range revs {
		remove(t, s, key, rev)
		create(t, s, key+"-new", "1")
	}
}

// D3: what has been overwritten is no reason to refuse, also if the store is compacted by itself at that moment.
func TestAStoreOfAFewObjectsIsNeverFull(t *testing.T) { onEach(t, testAStoreOfAFewObjectsIsNeverFull) }

func testAStoreOfAFewObjectsIsNeverFull(t *testing.T, p place) {
	s := p.openWith(t, kine.Options{MaxBytes: 4 << 20})
	large := []byte(strings.Repeat("x", 100<<10))
	var writing sync.WaitGroup
	for w := range 4 {
		key := fmt.Sprintf("/registry/%d", w)
		rev := create(t, s, key, "1")
		writing.Go(func() {
			for i := range 300 {
				resp, err := s.Client().Kubernetes.OptimisticPut(t.Context(), key, large, rev, kubernetes.PutOptions{GetOnFailure: true})
				if err != nil || !resp.Succeeded {
					t.Errorf("write %d of %s: %+v, %v", i, key, resp, err)
					return
				}
				rev = resp.Revision
			}
		})
	}
	writing.Wait()
}

// D3: the disk gets back what was deleted.
func TestACompactionGivesSpaceBack(t *testing.T) {
	s := openNew(t)
	each := func(write func(key string)) {
		var writing sync.WaitGroup
		for w := range 20 {
			writing.Go(func() {
				for i := range 55 {
					write(fmt.Sprintf("/registry/%d/%d", w, i))
				}
			})
		}
		writing.Wait()
	}
	large := strings.Repeat("x", 10<<10)
	each(func(key string) { remove(t, s, key, create(t, s, key, large)) })
	each(func(key string) { create(t, s, key, "1") }) // the last 1000 revisions are kept
	before := stats(t, s)
	if _, err := s.Client().Compact(t.Context(), before.Revision); err != nil {
		t.Fatal(err)
	}
	if after := stats(t, s); after.FileBytes > before.FileBytes/4 || after.WALBytes > 1<<20 {
		t.Errorf("file of %d bytes, log of %d, after a compaction; %d and %d before", after.FileBytes, after.WALBytes, before.FileBytes, before.WALBytes)
	}
}

// Without a compaction of its own, a store would fill within the API server's five minutes.
func TestAStoreThatIsWrittenOverAndOverStaysWithinItsLimit(t *testing.T) {
	onEach(t, testAStoreThatIsWrittenOverAndOverStaysWithinItsLimit)
}

func testAStoreThatIsWrittenOverAndOverStaysWithinItsLimit(t *testing.T, p place) {
	const limit = 16 << 20
	s := p.openWith(t, kine.Options{MaxBytes: limit})
	value := strings.Repeat("x", 20<<10)
	var writing sync.WaitGroup
	for w := range 8 {
		writing.Go(func() {
			key := fmt.Sprintf("/registry/%d", w)
			rev := create(t, s, key, "first")
			for range 200 { // 64 MB with the copies
				until(t, func() bool {
					resp, err := s.Client().Kubernetes.OptimisticPut(t.Context(), key, []byte(value), rev, kubernetes.PutOptions{GetOnFailure: true})
					if err != nil && !errors.Is(err, rpctypes.ErrNoSpace) || err == nil && !resp.Succeeded {
						t.Errorf("update %s to version %d: %v", key, resp.Revision, err)
						return true
					}
					if err != nil {
						return false
					}
					rev = resp.Revision
					return true
				})
			}
		})
	}
	writing.Wait()
	if got := stats(t, s); got.UsedBytes > limit*5/4 || got.FileBytes > 2*limit {
		t.Errorf("stats: %+v", got)
	}
}

func TestWhatIsTooLargeForEtcdIsRefused(t *testing.T) { onEach(t, testWhatIsTooLargeForEtcdIsRefused) }

func testWhatIsTooLargeForEtcdIsRefused(t *testing.T, p place) {
	s := p.open(t)
	large := strings.Repeat("x", 2<<20)
	if resp, err := s.Client().Kubernetes.OptimisticPut(t.Context(), "/registry/a", []byte(large), 0, kubernetes.PutOptions{}); err == nil {
		t.Errorf("put of 2 MiB: %+v", resp)
	}
	if _, err := s.Client().Put(t.Context(), "/registry/a", large); err == nil {
		t.Error("put of 2 MiB succeeded")
	}
}

// D4, S3: a tenant can't give an object a name, in Protobuf, that some type of store, a replica, or a snapshot can't have.
func TestHostileKeysThatAreNoTextAreRefused(t *testing.T) {
	onEach(t, testHostileKeysThatAreNoTextAreRefused)
}

func testHostileKeysThatAreNoTextAreRefused(t *testing.T, p place) {
	s := p.open(t)
	for _, key := range []string{"/registry/a\xff", "/registry/\x00"} {
		if resp, err := s.Client().Kubernetes.OptimisticPut(t.Context(), key, []byte("a"), 0, kubernetes.PutOptions{}); err == nil {
			t.Errorf("put of %q: %+v", key, resp)
		}
		if _, err := s.Client().Put(t.Context(), key, "a"); err == nil {
			t.Errorf("put of %q succeeded", key)
		}
	}
	create(t, s, "/registry/\u00e4\u4e16", "a")
}

// A list holds all it returns in memory, in a process that many spaces share.
func TestAListThatIsTooLargeIsRefusedAndComesInPages(t *testing.T) {
	onEach(t, testAListThatIsTooLargeIsRefusedAndComesInPages)
}

func testAListThatIsTooLargeIsRefusedAndComesInPages(t *testing.T, p place) {
	s := p.open(t)
	s.LimitLists(100 << 10)
	for i := range 30 {
		create(t, s, fmt.Sprintf("/registry/pods/%02d", i), strings.Repeat("x", 5000))
	}
	if _, err := s.Client().Kubernetes.List(t.Context(), "/registry/pods/", kubernetes.ListOptions{}); err == nil || !strings.Contains(err.Error(), "ask for it in pages") {
		t.Errorf("list of 150 KB = %v", err)
	}
	page, err := s.Client().Kubernetes.List(t.Context(), "/registry/pods/", kubernetes.ListOptions{Limit: 10})
	if err != nil || len(page.Kvs) != 10 || page.Count != 30 {
		t.Errorf("page of %d of %d, %v", len(page.Kvs), page.Count, err)
	}
}

// D3: nobody but the store has to see to it that its history goes.
func TestAStoreForgetsItsHistoryInTime(t *testing.T) { onEach(t, testAStoreForgetsItsHistoryInTime) }

func testAStoreForgetsItsHistoryInTime(t *testing.T, p place) {
	s := p.openWith(t, kine.Options{History: 20 * time.Millisecond})
	rev := create(t, s, "/registry/a", "0")
	for i := range 1100 {
		rev = put(t, s, "/registry/a", fmt.Sprint(i), rev)
	}
	until(t, func() bool { return s.CompactRevision() == rev-1000 }) // without a write more
	if v := value(t, s, "/registry/a"); v != "1099" {
		t.Errorf("value = %q", v)
	}
}

// A space that sleeps soon after each wake is never up for the API server's five minutes.
func TestAStoreThatClosesIsCompacted(t *testing.T) { onEach(t, testAStoreThatClosesIsCompacted) }

func testAStoreThatClosesIsCompacted(t *testing.T, p place) {
	s := p.open(t)
	var writing sync.WaitGroup
	for w := range 20 {
		writing.Go(func() {
			key := fmt.Sprintf("/registry/%d", w)
			rev := create(t, s, key, "0")
			for i := range 110 {
				rev = put(t, s, key, fmt.Sprint(i), rev)
			}
		})
	}
	writing.Wait()
	last := mustRevision(t, s)
	closeStore(t, s)
	s = p.open(t)
	if got := stats(t, s); got.CompactedRevision != last-1000 || got.Revision != last {
		t.Errorf("compacted to %d of %d, want %d", got.CompactedRevision, got.Revision, last-1000)
	}
	if v := value(t, s, "/registry/7"); v != "109" {
		t.Errorf("value = %q", v)
	}
}

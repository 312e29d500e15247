// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package feed

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.uber.org/goleak"

	"github.com/berth-dev/berth/kine"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, f *Feed, dir string) *kine.Store {
	t.Helper()
	s, err := kine.Open(t.Context(), kine.Options{Path: filepath.Join(dir, "store.db"), Name: "fed", Replica: f})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

func create(t *testing.T, s *kine.Store, key string) {
	t.Helper()
	if r, err := s.Client().Kubernetes.OptimisticPut(t.Context(), key, []byte("value"), 0, kubernetes.PutOptions{}); err != nil || !r.Succeeded {
		t.Fatalf("create %s: %v", key, err)
	}
}

// D2: a request waits until the store has something that the platform doesn't know.
func TestARequestWaitsForNews(t *testing.T) {
	f := New()
	s := open(t, f, t.TempDir())
	first := f.watch(t.Context(), Seen{})
	if first.Opening == 0 || first.Last != s.Last() {
		t.Fatalf("the state is %+v", first)
	}
	answers := make(chan State)
	go func() { answers <- f.watch(t.Context(), Seen{State: first}) }()
	create(t, s, "/registry/configmaps/default/a")
	if next := <-answers; next.Last <= first.Last || next.Opening != first.Opening {
		t.Errorf("after a write, the state is %+v", next)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	known := State{Opening: first.Opening, Last: s.Last(), Compacted: first.Compacted}
	if same := f.watch(ctx, Seen{State: known}); same != known || ctx.Err() == nil {
		t.Errorf("without news, the state is %+v", same)
	}
}

// D2: a store that closes waits until the platform has its last rows, if that asks for them at all.
func TestAStoreThatClosesWaitsForThePlatform(t *testing.T) {
	f := New()
	s := open(t, f, t.TempDir())
	create(t, s, "/registry/configmaps/default/a")
	state := f.watch(t.Context(), Seen{})
	closed := make(chan error)
	go func() { closed <- s.Close() }()
	closing := f.watch(t.Context(), Seen{State: state})
	if !closing.Closing || closing.Last != s.Last() {
		t.Fatalf("the state is %+v", closing)
	}
	if _, end := f.read(closing.Opening); end == nil {
		t.Error("its rows can't be read any more")
	} else {
		end()
	}
	select {
	case err := <-closed:
		t.Fatalf("it was closed too early (%v)", err)
	default:
	}
	last := f.watch(t.Context(), Seen{State: closing, Has: closing.Last})
	if err := <-closed; err != nil || last.Opening != 0 || last.Last != closing.Last {
		t.Errorf("the state is %+v (%v)", last, err)
	}
	if store, _ := f.read(closing.Opening); store != nil {
		t.Error("it can be read after it was closed")
	}
}

// D2: how long a store that closes waits depends on what the platform does.
func TestAStoreThatClosesWaitsNoLongerThanThePlatform(t *testing.T) {
	for what, test := range map[string]struct {
		asks    bool          // before the store closes
		uploads time.Duration // until the platform says that it has the rows; 0 if it never does
		want    time.Duration
	}{
		"without a platform":                {want: 0},
		"with a platform that uploads":      {asks: true, uploads: 3 * time.Second, want: 3 * time.Second},
		"with a platform that can't upload": {asks: true, want: closeTimeout},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := New()
			f.state = State{Opening: 1, Last: 500}
			if test.asks {
				go func() {
					closing := f.watch(t.Context(), Seen{State: f.state})
					if !closing.Closing {
						t.Errorf("%s, the state is %+v", what, closing)
					}
					if test.uploads > 0 {
						<-time.After(test.uploads)
						f.watch(t.Context(), Seen{State: closing, Has: closing.Last})
					}
				}()
				synctest.Wait()
			}
			began := time.Now()
			f.Closing()
			if took := time.Since(began); took != test.want {
				t.Errorf("%s, a store closed after %s, want %s", what, took, test.want)
			}
			synctest.Wait()
		})
	}
	synctest.Test(t, func(t *testing.T) {
		f := New()
		f.state = State{Opening: 1, Last: 500}
		f.ask(Seen{})
		f.answered()
		<-time.After(recently / 2)
		began := time.Now()
		f.Closing()
		if took := time.Since(began); took != askTimeout {
			t.Errorf("with a platform that has ended, a store closed after %s, want %s", took, askTimeout)
		}
	})
}

// D2, D3: rows are kept for a platform that asks, in a bounded number and for a while.
func TestRowsAreKeptForAPlatformThatAsks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := New()
		f.state.Last, f.state.Compacted = 500, 20
		check := func(what string, want int64) {
			t.Helper()
			if got := f.Compactable(); got != want {
				t.Errorf("%s, it may be compacted to %d, want %d", what, got, want)
			}
		}
		check("after the start", 20)
		<-time.After(unaskedFor + time.Second)
		check("if nobody asks", NoLimit)
		for keep, want := range map[int64]int64{-1: 20, 400: 400, 19: 19, 10: NoLimit, NoLimit: NoLimit} {
			f.ask(Seen{Keep: keep})
			f.answered()
			check(fmt.Sprintf("of which %d is to be kept", keep), want)
		}
		f.state.Last, f.state.Compacted = 500+MaxBacklog, 400
		f.ask(Seen{Keep: 499})
		f.answered()
		check("with a long backlog", NoLimit)
		f.ask(Seen{Keep: 501})
		f.answered()
		check("with a backlog", 501)
		<-time.After(askedFor + time.Second)
		check("after a platform that is gone", NoLimit)
	})
}

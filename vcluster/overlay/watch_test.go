// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package overlay_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	apistorage "k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
	"k8s.io/apiserver/pkg/storage/storagebackend"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/internal/testcrd"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/vcluster/builtin"
	"github.com/berth-dev/berth/vcluster/overlay"
	"github.com/berth-dev/berth/vcluster/storage"
)

const (
	prefix  = "/apiextensions.k8s.io/customresourcedefinitions/"
	timeout = 30 * time.Second
)

// open opens the storage of definitions in a store of its own, and follows the source. The account may be nil.
func open(t *testing.T, source *definitions.Source, account *bounds.Account) apistorage.Interface {
	t.Helper()
	store, err := kine.Open(t.Context(), kine.Options{Path: filepath.Join(t.TempDir(), "store.db"), Name: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	s := storage.New(store, account)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	s.Shared = overlay.New(source, s.Client, account)
	if err := s.Shared.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var follows sync.WaitGroup
	follows.Go(func() { s.Shared.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		follows.Wait()
	})
	opened, err := s.Open(builtin.Resource{
		Config: &storagebackend.ConfigForResource{
			Config: storagebackend.Config{
				Codec:               apiserver.Codecs.LegacyCodec(apiextensionsv1.SchemeGroupVersion),
				Prefix:              "/registry",
				EventsHistoryWindow: storagebackend.DefaultEventsHistoryWindow,
				LeaseManagerConfig:  etcd3.NewDefaultLeaseManagerConfig(),
			},
			GroupResource: apiextensions.Resource("customresourcedefinitions"),
		},
		Prefix:  prefix,
		New:     func() runtime.Object { return &apiextensions.CustomResourceDefinition{} },
		NewList: func() runtime.Object { return &apiextensions.CustomResourceDefinitionList{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	return opened
}

// setOf is a set of definitions whose UIDs begin with one of the host's.
func setOf(t *testing.T, uid string, kinds ...string) *definitions.Set {
	t.Helper()
	var all []*definitions.Shared
	for _, kind := range kinds {
		host := testcrd.New("example.com", kind, &apiextensionsv1.JSONSchemaProps{Type: "object"})
		host.UID = types.UID(uid + "-" + kind)
		served, err := definitions.Serve(host, "share")
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, &definitions.Shared{CRD: served, InRange: true})
	}
	return definitions.NewSet("", all...)
}

// waitFor waits until the definition of a name in force is that of a set.
func waitFor(t *testing.T, s apistorage.Interface, set *definitions.Set, name string) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		crd := &apiextensions.CustomResourceDefinition{}
		err := s.Get(ctx, prefix+name, apistorage.GetOptions{IgnoreNotFound: true}, crd)
		return crd.UID == set.Of(name).CRD.UID, err
	})
	if err != nil {
		t.Fatalf("%s is not in force: %v", name, err)
	}
}

func create(t *testing.T, s apistorage.Interface, name string) {
	t.Helper()
	crd := &apiextensions.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("own-" + name)}}
	if err := s.Create(t.Context(), prefix+name, crd, &apiextensions.CustomResourceDefinition{}, 0); err != nil {
		t.Fatal(err)
	}
}

func startWatch(t *testing.T, s apistorage.Interface) watch.Interface {
	t.Helper()
	w, err := s.Watch(t.Context(), prefix, apistorage.ListOptions{Recursive: true, Predicate: apistorage.Everything})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Stop)
	return w
}

func receive(t *testing.T, w watch.Interface) *apiextensions.CustomResourceDefinition {
	t.Helper()
	select {
	case event := <-w.ResultChan():
		crd, ok := event.Object.(*apiextensions.CustomResourceDefinition)
		if !ok {
			t.Fatalf("the watch reports %v", event)
		}
		return crd
	case <-time.After(timeout):
		t.Fatal("the watch reports nothing")
	}
	return nil
}

// TestASlowClientEndsWithWhatIsInForce has definitions change, and change back, while the client takes the events of the first change.
func TestASlowClientEndsWithWhatIsInForce(t *testing.T) {
	t.Parallel()
	kinds := []string{"Apple", "Banana", "Cherry"}
	first, second := setOf(t, "first", kinds...), setOf(t, "second", kinds...)
	source := &definitions.Source{}
	source.Set(second)
	s := open(t, source, nil)
	w := startWatch(t, s)
	last := map[string]types.UID{}
	for range kinds {
		crd := receive(t, w)
		last[crd.Name] = crd.UID
	}
	for i, set := range []*definitions.Set{first, second, first} {
		source.Set(set)
		waitFor(t, s, set, "cherrys.example.com")
		if i < 2 {
			crd := receive(t, w)
			last[crd.Name] = crd.UID
		}
	}
	create(t, s, "zebras.example.com")
	for last["zebras.example.com"] == "" {
		crd := receive(t, w)
		last[crd.Name] = crd.UID
	}
	for _, name := range first.Names() {
		if want := first.Of(name).CRD.UID; last[name] != want {
			t.Errorf("the client has %s as %s, want %s", name, last[name], want)
		}
	}
}

// TestASwitchFollowsAllEarlierChanges has more changes wait for a client than the store's watch holds.
func TestASwitchFollowsAllEarlierChanges(t *testing.T) {
	t.Parallel()
	const changes = 400
	source := &definitions.Source{}
	s := open(t, source, nil)
	w := startWatch(t, s)
	for i := range changes {
		create(t, s, fmt.Sprintf("own%d.example.com", i))
	}
	set := setOf(t, "host", "Apple")
	source.Set(set)
	waitFor(t, s, set, "apples.example.com")
	var err error
	for i := range changes {
		if crd := receive(t, w); definitions.IsShared(crd) {
			err = errors.Join(err, fmt.Errorf("the switch is reported after %d of %d earlier changes", i, changes))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if crd := receive(t, w); !definitions.IsShared(crd) {
		t.Errorf("the watch reports %s, want the shared definition", crd.Name)
	}
}

// L3: clients that take no events of shared definitions hold no more than the space may, however many watches they have, and one that does
// gets its events when others end.
func TestHostileWatchesHoldFewSharedDefinitions(t *testing.T) {
	t.Parallel()
	const watches, withinLimit = 40, 4
	set := setOf(t, "host", "Apple", "Banana")
	size := set.Of("apples.example.com").Size()
	account := bounds.NewAccount(bounds.Limits{bounds.WatchBytes: withinLimit * size})
	source := &definitions.Source{}
	source.Set(set)
	s := open(t, source, account)
	ctx := bounds.WithReservation(t.Context(), account.Reserve(bounds.MemoryBytes, 0)) // as a client's
	start := func() watch.Interface {
		w, err := s.Watch(ctx, prefix, apistorage.ListOptions{Recursive: true, Predicate: apistorage.Everything})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(w.Stop)
		return w
	}
	used := func(what string, isRight func(int64) bool) {
		t.Helper()
		err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, timeout, true, func(context.Context) (bool, error) {
			return isRight(account.Used(bounds.WatchBytes)), nil
		})
		if err != nil {
			t.Fatalf("%s: %d bytes are held, of definitions of %d", what, account.Used(bounds.WatchBytes), size)
		}
	}
	var open []watch.Interface
	for range watches {
		open = append(open, start())
	}
	used("clients that take nothing", func(n int64) bool { return n > withinLimit*size })
	err := wait.PollUntilContextTimeout(t.Context(), time.Millisecond, 200*time.Millisecond, true, func(context.Context) (bool, error) {
		return account.Used(bounds.WatchBytes) > (withinLimit+1)*size+size/2, nil // one may exceed the limit, and the two differ a little
	})
	if err == nil {
		t.Fatalf("%d bytes are held, of definitions of %d", account.Used(bounds.WatchBytes), size)
	}
	client := start()
	for _, w := range open {
		w.Stop()
	}
	for _, name := range set.Names() {
		if crd := receive(t, client); crd.Name != name {
			t.Errorf("the client gets %s, want %s", crd.Name, name)
		}
	}
	client.Stop()
	used("nobody", func(n int64) bool { return n == 0 })
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/hostaccess"
	"github.com/berth-dev/berth/platform/move"
	"github.com/berth-dev/berth/platform/pod"
	"github.com/berth-dev/berth/platform/spaceobjects"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/vcluster/pki"
)

// onShard is a platform that is a shard, and fails to read the host while fails is set.
type onShard struct {
	*Manager
	fails atomic.Bool
}

func newOnShard(t *testing.T) *onShard {
	t.Helper()
	ca, err := pki.OpenCA(t.TempDir(), "test")
	if err != nil {
		t.Fatal(err)
	}
	o := Options{DedicatedCommand: func(string) *exec.Cmd { return exec.Command("false") }}
	o.Shard, o.DataDir, o.Logger = "here", t.TempDir(), klog.Background()
	if err := o.Options.Complete(); err != nil {
		t.Fatal(err)
	}
	m := &onShard{Manager: New(o, Environment{CA: ca, Endpoint: func(space string) string { return "https://berth/spaces/" + space }})}
	cluster, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	config := cluster.Config()
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if m.fails.Load() {
				return nil, errors.New("the host is not there")
			}
			return next.RoundTrip(r)
		})
	})
	m.shard, err = shard.Start(t.Context(), shard.Config{Dir: t.TempDir(), Host: config, Sync: syncer.Options{OwnOnly: true}, Logger: klog.Background()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.shard.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return m
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// The pods of a dedicated space use the DNS of its shard. So what the host has of it is listed again until that succeeds.
func TestADedicatedSpaceIsCachedWhenItRuns(t *testing.T) {
	m := newOnShard(t)
	cluster, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	if m.objects, err = spaceobjects.Open(cluster.Config(), "own-dedicated"); err != nil { // which pods are managed by
		t.Fatal(err)
	}
	m.prepare = func(context.Context, string) error { return nil }
	m.access = hostaccess.New(nil, func() (*clientcmdapi.Cluster, error) { return nil, errors.New("it runs nothing") }, clock.RealClock{})
	for name, pods := range map[string]*dedicatedPods{
		"own-in-process": nil, "own-in-pod": {ca: m.env.CA, client: pod.NewClientCertificate(m.env.CA, clock.RealClock{})},
	} {
		t.Run(name, func(t *testing.T) {
			m.pods = pods
			m.fails.Store(true)
			m.own(name, &applied{})
			if err := m.shard.Host().Own(t.Context(), name); err == nil {
				t.Fatal("the space is listed while the host is not there")
			}
			process := m.newProcessOf(name, v1alpha1.SpaceSpec{})
			process.Start()
			defer func() {
				if err := process.Stop(context.Background()); err != nil {
					t.Error(err)
				}
			}()
			wantPolled(t, "the space isn't prepared", func() bool {
				conditions := process.Status(t.Context()).Conditions
				return len(conditions) > 0 && strings.Contains(conditions[0].Message, "prepare the space: list what the host has of space "+name)
			})
			m.fails.Store(false)
			wantPolled(t, "the space is cached", func() bool { return m.shard.Host().HasCached(name) })
		})
	}
}

// wantPolled fails unless something becomes true.
func wantPolled(t *testing.T, what string, is func() bool) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, testhost.Timeout, true, func(context.Context) (bool, error) { return is(), nil }); err != nil {
		t.Fatalf("this did not become true: %s", what)
	}
}

// A space that was to come to this shard, and whose object is gone, leaves nothing in the cache.
func TestASpaceThatIsGoneBeforeItComesIsNotOwn(t *testing.T) {
	m := newOnShard(t)
	var err error
	cluster, _ := shared()
	if m.objects, err = spaceobjects.Open(cluster.Config(), "own-gone"); err != nil {
		t.Fatal(err)
	}
	if err := m.objects.Define(t.Context()); err != nil {
		t.Fatal(err)
	}
	m.received = &move.Receiver{Dir: datadir.Received(m.config.DataDir)}
	host := m.shard.Host()
	host.BeginOwn("own-gone", "own-comes")
	end, err := m.changes.Begin("own-comes", "being received from another shard")
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]time.Duration{"own-gone": 0, "own-comes": busyRetry} {
		if again, err := m.reconcileGone(t.Context(), name); err != nil || again != want {
			t.Errorf("%s is reconciled again after %s (%v)", name, again, err)
		}
	}
	if host.IsOwn("own-gone") || !host.IsOwn("own-comes") {
		t.Error("the space that is gone is own, or the one that is being received isn't")
	}
	end()
	if again, err := m.reconcileGone(t.Context(), "own-comes"); err != nil || again != 0 || host.IsOwn("own-comes") {
		t.Errorf("when it was received, it is own, or is reconciled again after %s (%v)", again, err)
	}
}

// A shard that starts has the spaces of its objects and of its directory, but not those that another shard has by now.
func TestTheSpacesOfAShardAreKnownWhenItStarts(t *testing.T) {
	cluster, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	m := &Manager{}
	m.config.Shard, m.config.DataDir = "here", t.TempDir()
	if m.objects, err = spaceobjects.Open(cluster.Config(), "own-at-start"); err != nil {
		t.Fatal(err)
	}
	if err := m.objects.Define(t.Context()); err != nil {
		t.Fatal(err)
	}
	for name, is := range map[string]struct {
		shard         string
		directory     bool
		withoutObject bool
	}{
		"own-object-only":  {shard: "here"},
		"own-object-both":  {shard: "here", directory: true},
		"own-left":         {shard: "there", directory: true},
		"own-elsewhere":    {shard: "there"},
		"own-no-shard-yet": {directory: true},
		"own-no-object":    {directory: true, withoutObject: true},
		"own-unplaced":     {},
	} {
		if is.directory {
			if err := os.MkdirAll(datadir.Space(m.config.DataDir, name), 0o700); err != nil {
				t.Fatal(err)
			}
		}
		if is.withoutObject {
			continue
		}
		object := &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.SpaceSpec{PlatformName: "own-at-start"}}
		if err := m.objects.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = m.objects.Client.Delete(context.Background(), object) })
		if object.Status.Shard = is.shard; is.shard != "" {
			if err := m.objects.Client.Status().Update(t.Context(), object); err != nil {
				t.Fatal(err)
			}
		}
	}
	stop, err := m.objects.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	names, err := m.ownAtStart()
	slices.Sort(names)
	if want := []string{"own-no-object", "own-no-shard-yet", "own-object-both", "own-object-only"}; err != nil || !slices.Equal(slices.Compact(names), want) {
		t.Errorf("the shard has %v (%v), want %v", names, err, want)
	}
	m.config.Shard = ""
	if names, err := m.ownAtStart(); err != nil || names != nil {
		t.Errorf("a process that is no shard asks for its spaces: %v (%v)", names, err)
	}
}

// D1, D5: a shard that has given a space away doesn't serve it again, although its watch still says that the space is here, and so do the files.
func TestAShardThatIsBehindServesNoSpaceThatHasMoved(t *testing.T) {
	m := newOnShard(t)
	cluster, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	if m.objects, err = spaceobjects.Open(cluster.Config(), "own-behind"); err != nil {
		t.Fatal(err)
	}
	if err := m.objects.Define(t.Context()); err != nil {
		t.Fatal(err)
	}
	spaces := map[string]struct {
		movingTo string // as the watch says
		stored   bool   // in a database server, so that there are no files any more
		shard    string // that has it now
		moves    int64
	}{
		"own-behind-moving": {movingTo: "there", shard: "there", moves: 1},
		"own-behind-before": {shard: "there", moves: 1},
		"own-behind-back":   {movingTo: "there", shard: "here", moves: 2},
		"own-behind-stored": {stored: true, shard: "there", moves: 1},
	}
	objects := map[string]*v1alpha1.Space{}
	for name, is := range spaces {
		id, err := datadir.StoreID(m.config.DataDir, name)
		if err != nil {
			t.Fatal(err)
		}
		object := &v1alpha1.Space{
			ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{translate.AnnotationStore: id}, Finalizers: []string{v1alpha1.Finalizer}},
			Spec:       v1alpha1.SpaceSpec{PlatformName: "own-behind"},
		}
		if is.stored {
			object.Spec.Store = v1alpha1.Store{Type: v1alpha1.StorePostgreSQL, SecretName: "store"}
			if err := os.RemoveAll(datadir.Space(m.config.DataDir, name)); err != nil {
				t.Fatal(err)
			}
		}
		if err := m.objects.Client.Create(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			object.Finalizers = nil
			_ = m.objects.Client.Update(context.Background(), object)
			_ = m.objects.Client.Delete(context.Background(), object)
		})
		object.Status.Shard, object.Status.MovingTo = "here", is.movingTo
		if err := m.objects.Client.Status().Update(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		objects[name] = object
	}
	stop, err := m.objects.Watch(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	stop() // it is behind from now on
	for name, is := range spaces {
		object := objects[name]
		object.Status.Shard, object.Status.MovingTo, object.Status.Moves = is.shard, "", ptr.To(is.moves)
		if err := m.objects.Client.Status().Update(t.Context(), object); err != nil {
			t.Fatal(err)
		}
		m.moved.Store(name, "there")
		if again, err := m.reconcile(t.Context(), name); again != busyRetry || err != nil || m.applied.get(name) != nil {
			t.Errorf("%s: it is run, or is reconciled again after %s (%v)", name, again, err)
		}
		if to := m.ShardOf(name); to != "there" {
			t.Errorf("%s: requests are sent to shard %q", name, to)
		}
	}
}

// Requests to a space that has moved here wait until it is served, and get no 401 because its keys aren't here yet. Those to others don't.
func TestRequestsToASpaceThatArrivesWait(t *testing.T) {
	moved := func(change func(*v1alpha1.Space)) *v1alpha1.Space {
		s := &v1alpha1.Space{Status: v1alpha1.SpaceStatus{Shard: "here", Moves: ptr.To(int64(1))}}
		change(s)
		return s
	}
	for name, c := range map[string]struct {
		object *v1alpha1.Space
		want   bool
	}{
		"moved here":        {moved(func(*v1alpha1.Space) {}), true},
		"moved elsewhere":   {moved(func(s *v1alpha1.Space) { s.Status.Shard = "there" }), false},
		"being deleted":     {moved(func(s *v1alpha1.Space) { s.DeletionTimestamp = &metav1.Time{Time: time.Now()} }), false},
		"never moved":       {moved(func(s *v1alpha1.Space) { s.Status.Moves = nil }), false},
		"with a new server": {moved(func(s *v1alpha1.Space) { s.Status.Moves, s.Spec.Store.Type = nil, v1alpha1.StorePostgreSQL }), false},
		"failed over": {moved(func(s *v1alpha1.Space) {
			s.Status.Moves, s.Spec.Store.Type = nil, v1alpha1.StorePostgreSQL
			s.Annotations = map[string]string{translate.AnnotationStore: "an-id"}
		}), true},
	} {
		if is := arrives(c.object, "here"); is != c.want {
			t.Errorf("%s: a request waits: %t, want %t", name, is, c.want)
		}
	}
}

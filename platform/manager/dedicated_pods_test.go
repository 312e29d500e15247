// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/testtokens"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/hostaccess"
	"github.com/berth-dev/berth/platform/kubeconfig"
	"github.com/berth-dev/berth/platform/process"
	"github.com/berth-dev/berth/platform/spaceprocess"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/shard/dedicated"
	"github.com/berth-dev/berth/snapshot"
	"github.com/berth-dev/berth/vcluster/pki"
)

// movable is a platform with a space whose store is here, and the process in a pod of it, which runs nothing.
type movable struct {
	*Manager
	pod   *dedicated.Process
	shard *restarting // that the pod runs
	dir   string      // of the space in the pod
	fails atomic.Value
	// waits says that the pod waits until it is allowed to open a store in a database server, and allowed counts how often it was.
	waits   atomic.Bool
	allowed atomic.Int32
}

// dieAt has the pod refuse one command from now on, or from the second time or after it, as if it, or the platform,
// ended there.
func (m *movable) dieAt(command string) { m.fails.Store(command) }

func newMovable(t *testing.T) *movable {
	t.Helper()
	m := &movable{Manager: &Manager{logger: klog.Background()}, shard: &restarting{}}
	m.config.DataDir = t.TempDir()
	if err := m.config.Options.Complete(); err != nil {
		t.Fatal(err)
	}
	m.fails.Store("")
	here := datadir.Space(m.config.DataDir, "moved")
	if err := errors.Join(os.MkdirAll(here, 0o700), os.MkdirAll(datadir.Scratch(m.config.DataDir), 0o700)); err != nil {
		t.Fatal(err)
	}
	store, err := kine.Open(t.Context(), kine.Options{Path: filepath.Join(here, "store.db"), Name: "moved"})
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	ca, err := pki.OpenCA(t.TempDir(), dedicatedCA)
	if err != nil {
		t.Fatal(err)
	}
	files := t.TempDir()
	pair, err := ca.Server(dedicated.ServerName("moved"))
	if err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string][]byte{dedicated.CertFile: pair.Cert, dedicated.KeyFile: pair.Key, dedicated.ClientsFile: ca.PEM()} {
		if err := os.WriteFile(filepath.Join(files, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	data := t.TempDir()
	m.dir = datadir.Space(data, "moved")
	// The real one, without a shard: what it does to the store is what is asked about.
	server, err := spaceprocess.NewStore(spaceprocess.StoreConfig{
		Space: "moved", Dir: m.dir, Scratch: t.TempDir(), Shard: m.shard, Spaces: asleep{}, Awake: func() int64 { return 0 }, Mark: filepath.Join(data, spaceprocess.BegunFile),
		Allow: func() { m.allowed.Add(1); m.waits.Store(false) }, Waits: m.waits.Load,
	})
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	server.Serve(mux)
	commands := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		command, _ := m.fails.Load().(string)
		once, second := strings.CutPrefix(command, "second ")
		if second && r.Method+" "+r.URL.Path == once {
			m.fails.Store(once)
		} else if command != "" && r.Method+" "+r.URL.Path == strings.TrimPrefix(command, "after ") {
			if strings.HasPrefix(command, "after ") {
				mux.ServeHTTP(&discarded{http.Header{}}, r)
			}
			http.Error(w, "killed", http.StatusInternalServerError)
			return
		}
		mux.ServeHTTP(w, r)
	})
	at := dedicated.Addresses{API: freeAddress(t), Commands: freeAddress(t)}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() {
		served <- dedicated.ServeTLS(ctx, at, dedicated.ServerTLS(files), http.NotFoundHandler(), commands, klog.Background())
	}()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	certificate := func() (tls.Certificate, error) {
		pair, err := ca.Client(dedicated.PlatformUser(), nil)
		if err != nil {
			return tls.Certificate{}, err
		}
		return pair.TLS()
	}
	endpoint := dedicated.Remote(func() (dedicated.Addresses, error) { return at, nil }, dedicated.ClientTLS("moved", ca.PEM, certificate))
	m.pod = dedicated.NewRemote("moved", "", endpoint, nil, nil, klog.Background())
	if err := wait.PollUntilContextTimeout(t.Context(), podPoll/50, podTimeout, true, func(ctx context.Context) (bool, error) {
		_, err := m.pod.State(ctx)
		return err == nil, nil
	}); err != nil {
		t.Fatal("the pod does not answer")
	}
	return m
}

// asleep are spaces that sleep, in order.
type asleep struct{}

func (asleep) Names() []string { return nil }
func (asleep) Snapshot(context.Context, string, string) (bool, error) {
	return false, snapshot.ErrAsleep
}
func (asleep) Revision(string) int64              { return 0 }
func (asleep) Wake(context.Context, string) error { return errors.New("nothing runs it") }

// noShard runs nothing.
type noShard struct{}

func (noShard) Add(string) error                        { return nil }
func (noShard) WarmUp(string)                           {}
func (noShard) Status(string) (shard.Status, bool)      { return shard.Status{}, false }
func (noShard) StopSpace(context.Context, string) error { return nil }
func (noShard) Restart(context.Context, string) error   { return nil }
func (noShard) Hold(string) (release func())            { return func() {} }

// restarting counts the restarts of the space, which fail while fails is set.
type restarting struct {
	noShard
	has, fails atomic.Bool
	restarts   atomic.Int32
}

func (r *restarting) Add(string) error {
	r.has.Store(true)
	return nil
}

func (r *restarting) Status(string) (shard.Status, bool) { return shard.Status{}, r.has.Load() }

func (r *restarting) Restart(context.Context, string) error {
	if r.fails.Load() {
		return errors.New("the space does not stop")
	}
	r.restarts.Add(1)
	return nil
}

// discarded is an answer that never arrives.
type discarded struct{ header http.Header }

func (d *discarded) Header() http.Header         { return d.header }
func (d *discarded) Write(p []byte) (int, error) { return len(p), nil }
func (d *discarded) WriteHeader(int)             {}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// D1, T9: wherever a move to a pod breaks off, one store counts, it is the one that was there, the pod doesn't run the
// space before the store here counts no more, and the next try goes on.
func TestAMoveToAPodThatBreaksOffLeavesOneStoreThatCounts(t *testing.T) {
	for _, at := range []string{
		"", "GET " + dedicated.StatePath, "PUT " + dedicated.StorePath, "after PUT " + dedicated.StorePath, "PUT " + dedicated.IdentityPath,
		"after PUT " + dedicated.IdentityPath, "POST " + dedicated.BeginPath, "after POST " + dedicated.BeginPath,
	} {
		t.Run(at, func(t *testing.T) {
			m := newMovable(t)
			here := datadir.Space(m.config.DataDir, "moved")
			m.dieAt(at)
			if err := m.moveStoreToPod(t.Context(), "moved", m.pod); (err == nil) != (at == "") {
				t.Errorf("the move: %v", err)
			}
			m.dieAt("")
			where, err := m.storeLocation("moved")
			if err != nil {
				t.Fatal(err)
			}
			state, err := m.pod.State(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if where == nil && (!snapshot.Exists(here) || state.Begun) || where != nil && !state.HasStore {
				t.Errorf("the store is in the pod: %v; here: %t; the pod: %+v", where, snapshot.Exists(here), state)
			}
			if err := m.moveStoreToPod(t.Context(), "moved", m.pod); err != nil {
				t.Fatal(err)
			}
			if state, err = m.pod.State(t.Context()); err != nil || !state.Begun || !state.HasStore || snapshot.Exists(here) {
				t.Errorf("after the next try: %+v (%v), here %t", state, err, snapshot.Exists(here))
			}
			if keys, err := spaceprocess.ReadIdentity(m.dir); err != nil || len(keys["pki/service-account.key"]) == 0 || len(keys["node.key"]) == 0 {
				t.Errorf("the pod has the keys %v (%v)", keys, err)
			}
		})
	}
}

// D1, T9: wherever the way back breaks off, one store counts, and it is the one that was there; the space doesn't run
// in the pod once the store here counts; and the next try goes on, be it back or to the pod again.
func TestAMoveFromAPodThatBreaksOffLeavesOneStoreThatCounts(t *testing.T) {
	for _, next := range []string{"back", "to the pod"} {
		for _, at := range []string{
			"POST " + dedicated.EndPath, "after POST " + dedicated.EndPath, "GET " + dedicated.StatePath, "GET " + dedicated.StorePath,
			"after GET " + dedicated.StorePath, "second GET " + dedicated.StatePath,
		} {
			t.Run(at+", then "+next, func(t *testing.T) {
				m := newMovable(t)
				here := datadir.Space(m.config.DataDir, "moved")
				if err := m.moveStoreToPod(t.Context(), "moved", m.pod); err != nil {
					t.Fatal(err)
				}
				stored, err := os.ReadFile(filepath.Join(m.dir, "store.db"))
				if err != nil {
					t.Fatal(err)
				}
				m.dieAt(at)
				if err := m.receiveStore(t.Context(), "moved", m.pod, false); err == nil {
					t.Error("it did not break off")
				}
				m.dieAt("")
				where, err := m.storeLocation("moved")
				if err != nil || where == nil {
					t.Fatalf("the store here counts before all is done: %v", err)
				}
				if state, err := m.pod.State(t.Context()); err != nil || !state.HasStore {
					t.Errorf("the pod: %+v (%v)", state, err)
				}
				at, again := m.dir, m.moveStoreToPod
				if next == "back" {
					at, again = here, func(ctx context.Context, name string, p *dedicated.Process) error {
						return m.receiveStore(ctx, name, p, false)
					}
				}
				if err := again(t.Context(), "moved", m.pod); err != nil {
					t.Fatal(err)
				}
				where, err = m.storeLocation("moved")
				if err != nil || (where == nil) != (next == "back") {
					t.Errorf("after the next try: the store is in the pod: %t (%v)", where != nil, err)
				}
				if state, err := m.pod.State(t.Context()); err != nil || state.Begun != (next != "back") || snapshot.Exists(here) != (next == "back") {
					t.Errorf("after the next try: %+v (%v), here %t", state, err, snapshot.Exists(here))
				}
				if now, err := os.ReadFile(filepath.Join(at, "store.db")); err != nil || !bytes.Equal(now, stored) {
					t.Errorf("the store is another one (%v)", err)
				}
			})
		}
	}
}

// D1: a volume that is lost, or a store in two places, is told, and nothing is overwritten.
func TestAStoreThatIsLostOrInTwoPlacesIsTold(t *testing.T) {
	m := newMovable(t)
	if err := m.moveStoreToPod(t.Context(), "moved", m.pod); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(filepath.Join(m.dir, "store.db")); err != nil {
		t.Fatal(err)
	}
	if err := m.moveStoreToPod(t.Context(), "moved", m.pod); err == nil || !strings.Contains(err.Error(), "restore the space from a snapshot") {
		t.Errorf("a lost volume: %v", err)
	}
	if err := os.Remove(filepath.Join(datadir.Space(m.config.DataDir, "moved"), storeLocationFile)); err != nil {
		t.Fatal(err)
	}
	if err := m.moveStoreToPod(t.Context(), "moved", m.pod); err == nil || !strings.Contains(err.Error(), "if that is the one that counts") {
		t.Errorf("two stores: %v", err)
	}
}

// D1: a space that was new when it came to its pod has a store from its first start on, whose loss is told.
func TestAStoreOfANewSpaceThatIsLostIsTold(t *testing.T) {
	m := newMovable(t)
	if err := errors.Join(removeStore(datadir.Space(m.config.DataDir, "moved")), m.moveStoreToPod(t.Context(), "moved", m.pod)); err != nil {
		t.Fatal(err)
	}
	if _, isNew, err := m.checkPod(t.Context(), "moved", m.pod); err != nil || !isNew {
		t.Errorf("before its first store: new %t (%v)", isNew, err)
	}
	if err := errors.Join(os.MkdirAll(m.dir, 0o700), os.WriteFile(filepath.Join(m.dir, "store.db"), []byte("a store"), 0o600)); err != nil {
		t.Fatal(err)
	}
	if _, isNew, err := m.checkPod(t.Context(), "moved", m.pod); err != nil || isNew {
		t.Errorf("after its first store: new %t (%v)", isNew, err)
	}
	volume := filepath.Dir(filepath.Dir(m.dir))
	if err := errors.Join(os.Remove(filepath.Join(m.dir, "store.db")), os.Remove(filepath.Join(volume, spaceprocess.BegunFile))); err != nil {
		t.Fatal(err)
	}
	if _, _, err := m.checkPod(t.Context(), "moved", m.pod); err == nil || !strings.Contains(err.Error(), "does not run it any more") {
		t.Errorf("a pod on a new volume: %v", err)
	}
	if err := m.moveStoreToPod(t.Context(), "moved", m.pod); err == nil || !strings.Contains(err.Error(), "restore the space from a snapshot") {
		t.Errorf("the next try: %v", err)
	}
	m.dieAt("GET " + dedicated.StatePath)
	if _, _, err := m.checkPod(t.Context(), "moved", m.pod); err != nil {
		t.Errorf("a pod that does not answer: %v", err)
	}
}

// X2: keys that were rotated reach a pod that could not be reached, or could not restart the space, and a token that
// was due reaches one whose host was out of reach, each as soon as that works, and no more than once.
func TestWhatAPodLacksIsSentUntilItHasIt(t *testing.T) {
	m := newMovable(t)
	host := testtokens.New()
	m.access = hostaccess.New(host.Client(t), nil, host.Clock)
	if err := m.moveStoreToPod(t.Context(), "moved", m.pod); err != nil {
		t.Fatal(err)
	}
	applied := ""
	k := &podKeeper{Manager: m.Manager, space: "moved", pod: m.pod, apply: func(ctx context.Context) (err error) {
		token, err := m.access.Token(ctx, "moved")
		if err == nil {
			applied = token
		}
		return err
	}}
	if err := k.apply(t.Context()); err != nil {
		t.Fatal(err)
	}
	rotate := func() {
		if err := pki.RotateServiceAccountKey(kubeconfig.ClientKeys(m.config.DataDir, "moved"), time.Now(), 0); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		reason   string
		do       func()
		pause    time.Duration
		restarts int32
		token    string
	}{
		{"nothing has changed", func() {}, renewPoll, 0, "token-1"},
		{"the pod does not take new keys", func() { rotate(); m.dieAt("PUT " + dedicated.IdentityPath) }, podRetry, 0, "token-1"},
		{"it takes them", func() { m.dieAt("") }, renewPoll, 1, "token-1"},
		{"it is told, and its answer is lost", func() { rotate(); m.dieAt("after PUT " + dedicated.IdentityPath) }, podRetry, 2, "token-1"},
		{"it has them", func() { m.dieAt("") }, renewPoll, 2, "token-1"},
		{"it takes them, but the space does not restart", func() { rotate(); m.shard.fails.Store(true) }, podRetry, 2, "token-1"},
		{"it still does not", func() {}, podRetry, 2, "token-1"},
		{"it restarts", func() { m.shard.fails.Store(false) }, renewPoll, 3, "token-1"},
		{"the pod does not answer", func() { rotate(); m.dieAt("GET " + dedicated.StatePath) }, podRetry, 3, "token-1"},
		{"it answers", func() { m.dieAt("") }, renewPoll, 4, "token-1"},
		{"the token is due, and the host out of reach", func() { host.Clock.Step(31 * time.Minute); host.Down = true }, podRetry, 4, "token-1"},
		{"the host is back", func() { host.Down = false }, renewPoll, 4, "token-2"},
		{"nothing has changed again", func() {}, renewPoll, 4, "token-2"},
		{"an hour later", func() { host.Clock.Step(time.Hour) }, renewPoll, 4, "token-3"},
	} {
		step.do()
		pause, err := k.look(t.Context())
		if err != nil || pause != step.pause {
			t.Errorf("%s: the next look is after %s (%v), want %s", step.reason, pause, err, step.pause)
		}
		if restarts := m.shard.restarts.Load(); restarts != step.restarts || applied != step.token {
			t.Errorf("%s: %d restarts, and %s; want %d and %s", step.reason, restarts, applied, step.restarts, step.token)
		}
	}
}

// D1: the volume of a pod that has the only store of a space is not deleted because the space has no process now.
func TestAPodThatHasTheStoreIsNotRemoved(t *testing.T) {
	m := newMovable(t)
	if err := errors.Join(m.moveStoreToPod(t.Context(), "moved", m.pod), os.MkdirAll(datadir.Dedicated(m.config.DataDir, "moved"), 0o700)); err != nil {
		t.Fatal(err)
	}
	m.pods = &dedicatedPods{} // which would panic if it were used
	for what, remove := range map[string]func(context.Context, string) error{"isolate": m.isolate, "remove": m.removeProcess} {
		if err := remove(t.Context(), "moved"); err == nil || !strings.Contains(err.Error(), "create its Space object again") {
			t.Errorf("%s: %v", what, err)
		}
	}
	if !m.wasDedicated("moved") {
		t.Error("the directory that says that there is a pod is gone")
	}
}

// T9: a pod that is being deleted does not answer for the one that comes after it, and a platform without pods keeps
// the mark of one.
func TestAPodIsToldFromTheOneBefore(t *testing.T) {
	m := newMovable(t)
	dir := datadir.Dedicated(m.config.DataDir, "moved")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{spaceprocess.ConfigFile, hostaccess.KubeconfigFile} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	digests := map[string]bool{}
	for range 3 {
		digest, err := spaceprocess.Digest(dir)
		if err = errors.Join(err, newIncarnation(dir)); err != nil {
			t.Fatal(err)
		}
		digests[digest] = true
	}
	if len(digests) != 3 {
		t.Errorf("three incarnations have %d digests", len(digests))
	}
	if _, err := pki.Secret(dir, spaceprocess.IncarnationFile); err != nil {
		t.Error(err)
	}
	if err := m.removeProcess(t.Context(), "moved"); err != nil || !m.wasDedicated("moved") {
		t.Errorf("without pods: there is the mark: %t (%v)", m.wasDedicated("moved"), err)
	}
	if err := errors.Join(os.Remove(filepath.Join(dir, spaceprocess.IncarnationFile)), m.removeProcess(t.Context(), "moved")); err != nil || m.wasDedicated("moved") {
		t.Errorf("of a process: there is the directory: %t (%v)", m.wasDedicated("moved"), err)
	}
}

// D2: a snapshot of a space that is to have a pod is of the store here, until that has been handed over.
func TestASnapshotDuringAMoveIsOfTheStoreThatCounts(t *testing.T) {
	m := newMovable(t)
	m.pods = &dedicatedPods{}
	m.processes.add("moved", m.pod, 1)
	spaces := allSpaces{manager: m.Manager}
	if sent, err := spaces.Snapshot(t.Context(), "moved", filepath.Join(t.TempDir(), "copy.db")); !errors.Is(err, snapshot.ErrAsleep) || sent {
		t.Errorf("before it is moved: sent %t (%v)", sent, err)
	}
	if err := m.moveStoreToPod(t.Context(), "moved", m.pod); err != nil {
		t.Fatal(err)
	}
	if here, err := m.notMovedYet("moved"); err != nil || here {
		t.Errorf("after it: the store is here: %t (%v)", here, err)
	}
}

// A process that takes the place of another is not refused because there are as many as there may be.
func TestAProcessIsSwapped(t *testing.T) {
	var p processes
	first, second := &dedicated.Process{}, &dedicated.Process{}
	p.swap("a", first)
	if p.get("a") != nil {
		t.Error("a space that had no process has one")
	}
	p.add("a", first, 1)
	if p.swap("a", second); p.get("a") != second {
		t.Error("the process is the one before")
	}
}

// S3: who takes over the pod of a space finds no other space's settings there, and no place of snapshots; and what the process is told is a
// configuration that it takes.
func TestHostileAPodIsToldOfItsOwnSpaceAlone(t *testing.T) {
	m := &Manager{pods: &dedicatedPods{}, env: Environment{Endpoint: func(space string) string { return "https://berth.example/spaces/" + space }}}
	m.config.DataDir = t.TempDir()
	m.config.SnapshotDestinations = []string{"s3://secret-usual", "s3://secret-of-mine"}
	m.config.SpaceDefaults.Snapshots.To = "s3://secret-usual"
	m.config.Spaces = []v1alpha1.Space{{ObjectMeta: metav1.ObjectMeta{Name: "secret-other"}}}
	d := m.podConfig("mine", v1alpha1.SpaceSpec{Isolation: v1alpha1.Dedicated, Snapshots: v1alpha1.Snapshots{To: "s3://secret-of-mine"}})
	file := filepath.Join(t.TempDir(), spaceprocess.ConfigFile)
	if err := d.Write(file); err != nil {
		t.Fatal(err)
	}
	told, err := os.ReadFile(file)
	if err != nil || bytes.Contains(told, []byte("secret")) || !bytes.Contains(told, []byte("mine")) {
		t.Errorf("it is told %s (%v)", told, err)
	}
	if _, err := process.ReadDedicated(file); err != nil {
		t.Error(err)
	}
	if len(m.config.SnapshotDestinations) != 2 || m.config.SpaceDefaults.Snapshots.To == "" {
		t.Error("the platform has forgotten where snapshots go")
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/testservers"
)

// createStored creates a space with a store in a database server on a shard, and waits until it is ready.
func (s *shards) createStored(t *testing.T, space, shard, kind, dsn string) {
	t.Helper()
	s.host.apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Secret
metadata: {name: %[1]s-store, namespace: %[2]s, labels: {berth.dev/space: %[1]s}}
stringData: {dsn: %[4]q}
---
apiVersion: berth.dev/v1alpha1
kind: Space
metadata: {name: %[1]s}
spec: {platformName: %[2]s, store: {type: %[3]s, secretName: %[1]s-store}}
`, space, s.platform, kind, dsn))
	s.host.kubectl(t, "patch", "space", space, "--subresource=status", "--type=merge", "--patch", fmt.Sprintf(`{"status":{"shard":%q}}`, shard))
	s.host.kubectl(t, "wait", "--for=condition=Ready", "space/"+space, "--timeout=90s")
}

// survivors returns a service of which a shard is not one, with clients that wait only seconds for a response.
func (s *shards) survivors(dead string) *service {
	service := s.service()
	service.remove(dead)
	return service
}

// writers write until stop is called, each name once, as long as it takes.
type writers struct {
	mu     sync.Mutex
	acked  []string
	failed int
	last   error
}

func (w *writers) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.acked)
}

func writing(t *testing.T, clients ...*cluster) (w *writers, stop func()) {
	t.Helper()
	w = &writers{}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for i, client := range clients {
		client := must(kubernetes.NewForConfig(paced(client)))(t)
		group.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				name := fmt.Sprintf("written-%d-%d", i, n)
				for ctx.Err() == nil {
					try, cancel := context.WithTimeout(ctx, 5*time.Second)
					_, err := client.CoreV1().ConfigMaps("default").Create(try, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
					cancel()
					w.mu.Lock()
					done := err == nil || apierrors.IsAlreadyExists(err) // the answer to an earlier attempt was lost
					if done {
						w.acked = append(w.acked, name)
					} else {
						w.failed, w.last = w.failed+1, err
					}
					w.mu.Unlock()
					if done {
						break
					}
				}
			}
		})
	}
	return w, func() {
		cancel()
		group.Wait()
	}
}

// mustHave fails the test if a space lacks an acknowledged write.
func (w *writers) mustHave(t *testing.T, client *cluster) {
	t.Helper()
	have := map[string]bool{}
	for _, one := range must(client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}))(t).Items {
		have[one.Name] = true
	}
	for _, name := range w.acked {
		if !have[name] {
			t.Errorf("the write of %s was acknowledged, and is lost", name)
		}
	}
	t.Logf("%d writes were acknowledged, and %d failed, the last one with %v", len(w.acked), w.failed, w.last)
}

// serves asks once whether a space serves a read of its store.
func serves(t *testing.T, client *cluster) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	return client.CoreV1().RESTClient().Get().AbsPath("/api/v1/namespaces/default").MaxRetries(0).Do(ctx).Error()
}

// direct returns clients of a space by one shard, with the credentials that another one has.
func (s *shards) direct(t *testing.T, shard, space, has string) *cluster {
	t.Helper()
	config := must(clientcmd.BuildConfigFromFlags("", filepath.Join(s.processes[has].dir, space+".kubeconfig")))(t)
	config.QPS = -1
	config.Dial = func(ctx context.Context, network, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, s.processes[shard].listen)
	}
	return &cluster{Interface: must(kubernetes.NewForConfig(config))(t), config: config}
}

// D4, T9: spaces with stores in database servers are served by another shard within seconds of the death of their own. No acknowledged
// write is lost, their credentials and their pods stay, and the dead shard doesn't serve them when it is back. A space with a file waits.
func TestASpaceWithAStoreInAServerFailsOver(t *testing.T) {
	t.Parallel()
	s := startShards(t, "killed", "killed-0", "killed-1", "killed-2")
	const victim, file = "killed-0", "killed-file"
	service := s.survivors(victim)
	victims := map[string]*failing{}
	for kind, in := range storesIn {
		t.Run("start "+kind, func(t *testing.T) {
			f := &failing{shards: s, name: "killed-" + strings.ToLower(kind), victim: victim}
			s.createStored(t, f.name, victim, kind, in.start(t).Database(t))
			victims[kind] = f
		})
	}
	s.create(t, file, victim)
	s.operate(t)
	for kind, f := range victims {
		t.Run("write to "+kind, func(t *testing.T) {
			f.clients = []*cluster{service.client(t, f.name), service.client(t, f.name), service.client(t, f.name)}
			f.pod = f.clients[0].run(t, "default", newPod("stays"))
			f.clients[0].awaitRunning(t, "default", "stays")
			f.hostPods = s.hostPods(t, "berth-"+f.name)
		})
	}
	for _, f := range victims {
		f.writers, f.stop = writing(t, f.clients...)
	}
	for _, f := range victims {
		eventually(t, func() error { return expect("that it is written", f.writers.count() >= 50, true) })
	}
	s.processes[victim].crash(t)
	died := time.Now()
	for kind, f := range victims {
		t.Run(kind+" without its shard", func(t *testing.T) { f.checkServed(t, died) })
	}
	if is := s.shardOf(t, file); is != victim {
		t.Errorf("the space with a file is on %s", is)
	}
	s.processes[victim].restart(t)
	for kind, f := range victims {
		t.Run(kind+" when the shard is back", f.checkBack)
	}
	s.host.kubectl(t, "wait", "--for=condition=Ready", "space/"+file, "--timeout=90s")
}

// failing is a space whose shard ends.
type failing struct {
	*shards
	name, victim string
	clients      []*cluster // which don't use the shard
	pod          *corev1.Pod
	hostPods     []types.UID
	writers      *writers
	stop         func()
}

func (f *failing) checkServed(t *testing.T, died time.Time) {
	at := f.writers.count()
	eventually(t, func() error { return serves(t, f.clients[0]) })
	t.Logf("failover_s %.2f", time.Since(died).Seconds()) // make bench has a target for it
	eventually(t, func() error { return expect("that it is written", f.writers.count() >= at+10, true) })
	f.stop()
	f.writers.mustHave(t, f.clients[0])
	if now := must(f.clients[0].CoreV1().Pods("default").Get(t.Context(), "stays", metav1.GetOptions{}))(t); now.UID != f.pod.UID {
		t.Error("the pod is another one")
	}
	if after := f.shards.hostPods(t, "berth-"+f.name); !slices.Equal(after, f.hostPods) {
		t.Errorf("the pods on the host were %v and are %v", f.hostPods, after)
	}
}

// checkBack checks that the shard that ended serves nothing of the past, and that the space moves there as others do, without a file.
func (f *failing) checkBack(t *testing.T) {
	has := f.shardOf(t, f.name)
	eventually(t, func() error { return expect("who has the files", strings.Join(f.dirsOf(f.name), " "), has) })
	w, stop := writing(t, f.direct(t, f.victim, f.name, has), f.clients[1])
	eventually(t, func() error { return expect("that it is written to by all shards", w.count() > 20, true) })
	stop()
	w.mustHave(t, f.clients[0])

	l, stop := loaded(t, f.clients)
	for range 2 {
		to := f.victim
		if has == f.victim {
			to = "killed-1"
		}
		f.move(t, f.name, to)
		has = to
		eventually(t, func() error { return expect("who has the files", strings.Join(f.dirsOf(f.name), " "), to) })
	}
	stop()
	l.check(t)
	if files, err := filepath.Glob(filepath.Join(f.processes[has].dir, "spaces", f.name, "store.db*")); err != nil || len(files) > 0 {
		t.Errorf("the shard has %v (%v)", files, err)
	}
}

// T8: a shard that hangs loses its spaces to others. When it continues, it acknowledges no write, and serves no read of the past.
func TestAShardThatHangsIsFailedOver(t *testing.T) {
	t.Parallel()
	s := startShards(t, "hanging", "hanging-0", "hanging-1")
	server := testservers.PostgreSQL(t)
	s.createStored(t, "hung", "hanging-0", "PostgreSQL", server.Database(t))
	s.createStored(t, "hung-asleep", "hanging-0", "PostgreSQL", server.Database(t))
	s.operate(t)
	asleep := s.direct(t, "hanging-0", "hung-asleep", "hanging-0")
	must(asleep.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "before"}}, metav1.CreateOptions{}))(t)
	s.processes["hanging-0"].command(t, "sleep", "hung-asleep")
	stale := s.direct(t, "hanging-0", "hung", "hanging-0")
	w, stop := writing(t, stale, stale, stale)
	eventually(t, func() error { return expect("that it is written", w.count() > 50, true) })
	hung := s.processes["hanging-0"]
	if err := hung.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	s.host.kubectl(t, "wait", "--for=jsonpath={.status.shard}=hanging-1", "space/hung", "space/hung-asleep", "--timeout=180s")
	fresh := s.direct(t, "hanging-1", "hung", "hanging-0")
	eventually(t, func() error {
		_, err := fresh.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "marker", Labels: map[string]string{"by": "fresh"}}}, metav1.CreateOptions{})
		return err
	})
	// A snapshot that was restored there, and that no start has loaded, mustn't replace what is written elsewhere now.
	if err := os.WriteFile(filepath.Join(hung.dir, "spaces", "hung-asleep", "store.db"), []byte("restored"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := hung.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	// Each write that is acknowledged from here on is in the store, as are those before, because it was forwarded.
	at := w.count()
	eventually(t, func() error { return expect("that it is written again", w.count() > at+20, true) })
	stop()
	w.mustHave(t, fresh)
	if _, err := stale.CoreV1().ConfigMaps("default").Get(t.Context(), "marker", metav1.GetOptions{}); err != nil {
		t.Errorf("the shard that hung serves the past: %v", err)
	}
	eventually(t, func() error { return expect("who has the files", strings.Join(s.dirsOf("hung"), " "), "hanging-1") })
	eventually(t, func() error {
		return expect("who has those of the one that slept", strings.Join(s.dirsOf("hung-asleep"), " "), "hanging-1")
	})
	eventually(t, func() error {
		events, err := s.host.tryKubectl(t, "", "get", "events", "--field-selector", "involvedObject.name=hung-asleep,reason="+v1alpha1.ReasonSnapshotNotLoaded, "-o", "name")
		return errors.Join(err, expect("that an event tells of the snapshot", events != "", true))
	})
	must(s.direct(t, "hanging-0", "hung-asleep", "hanging-1").CoreV1().ConfigMaps("default").Get(t.Context(), "before", metav1.GetOptions{}))(t)
	if out := hung.output(); strings.Contains(out, "panic:") {
		t.Error("the shard that hung has panicked")
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
)

// move moves a space, and waits until its object says that it is there.
func (s *shards) move(t *testing.T, space, to string) {
	t.Helper()
	s.beginMove(t, space, to)
	s.host.kubectl(t, "wait", "--for=jsonpath={.status.shard}="+to, "space/"+space, "--timeout=180s")
}

func (s *shards) beginMove(t *testing.T, space, to string) {
	t.Helper()
	s.host.kubectl(t, "patch", "space", space, "--subresource=status", "--type=merge", "--patch", fmt.Sprintf(`{"status":{"movingTo":%q}}`, to))
}

// shardOf returns which shard a space is on, by its object.
func (s *shards) shardOf(t *testing.T, space string) string {
	t.Helper()
	return s.host.kubectl(t, "get", "space", space, "-o", "jsonpath={.status.shard}")
}

// dirsOf returns the shards that have a directory of a space.
func (s *shards) dirsOf(space string) (names []string) {
	for name, process := range s.processes {
		if _, err := os.Stat(filepath.Join(process.dir, "spaces", space)); err == nil {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// hostPods returns the pods in a namespace of the host.
func (s *shards) hostPods(t *testing.T, namespace string) (uids []types.UID) {
	t.Helper()
	for _, pod := range must(s.host.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{}))(t).Items {
		uids = append(uids, pod.UID)
	}
	return uids
}

// D5: a space moves between shards, back and forth, under the requests of clients of either, and of none: no request fails, no
// acknowledged write is lost, a watch goes on, its pods run on, and one shard has its files.
func TestASpaceMovesWithoutAFailedRequest(t *testing.T) {
	t.Parallel()
	s := startShards(t, "moving", "left", "right", "other")
	s.create(t, "wandering", "left")
	var clients []*cluster
	for _, through := range []string{"left", "right", "other"} {
		clients = append(clients, s.through(t, through, "wandering", "left"), s.through(t, through, "wandering", "left"))
	}
	pod := clients[0].run(t, "default", newPod("stays"))
	clients[0].awaitRunning(t, "default", "stays")
	before := s.hostPods(t, "berth-wandering")

	watching := watched(t, clients[2])
	l, stop := loaded(t, clients)
	for _, to := range []string{"right", "left", "other", "right"} {
		s.move(t, "wandering", to)
		eventually(t, func() error { return expect("who has the files", strings.Join(s.dirsOf("wandering"), " "), to) })
	}
	stop()
	l.check(t)
	watching.check(t, l.written)
	for name, value := range l.written {
		if read := must(clients[0].CoreV1().ConfigMaps("default").Get(t.Context(), name, metav1.GetOptions{}))(t); read.Data["value"] != strconv.Itoa(value) {
			t.Errorf("%s is %s, and %d was acknowledged", name, read.Data["value"], value)
		}
	}
	if now := must(clients[0].CoreV1().Pods("default").Get(t.Context(), "stays", metav1.GetOptions{}))(t); now.UID != pod.UID {
		t.Error("the pod is another one")
	}
	if after := s.hostPods(t, "berth-wandering"); !slices.Equal(after, before) {
		t.Errorf("the pods on the host were %v and are %v", before, after)
	}
}

// D5: a crash of either shard at any moment of a move leaves the space on one of the two, with each acknowledged write, also of those that
// came during the move, and although the space goes back before what the crash left behind is removed.
func TestACrashDuringAMoveLosesNothing(t *testing.T) {
	t.Parallel()
	s := startShards(t, "crashing", "first", "second", "third")
	s.create(t, "survivor", "first")
	client := s.through(t, "third", "survivor", "first")
	var mu sync.Mutex
	written := map[string]bool{}
	ctx, cancel := context.WithCancel(t.Context())
	var writing sync.WaitGroup
	writing.Go(func() {
		next := 0
		_ = wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(context.Context) (bool, error) {
			next++
			name := "write-" + strconv.Itoa(next)
			limited, end := context.WithTimeout(t.Context(), 20*time.Second)
			defer end()
			if _, err := client.CoreV1().ConfigMaps("default").Create(limited, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{}); err == nil {
				mu.Lock()
				defer mu.Unlock()
				written[name] = true
			}
			return false, nil
		})
	})
	check := func(round int) {
		mu.Lock()
		names := slices.Collect(maps.Keys(written))
		mu.Unlock()
		eventually(t, func() error {
			list, err := client.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
			if err != nil {
				return err
			}
			have := map[string]bool{}
			for _, one := range list.Items {
				have[one.Name] = true
			}
			for _, name := range names {
				if !have[name] {
					t.Fatalf("round %d: the write of %s was acknowledged, and is lost", round, name)
				}
			}
			return nil
		})
	}
	other := map[string]string{"first": "second", "second": "first"}
	for round := range 12 {
		from := s.shardOf(t, "survivor")
		to := other[from]
		s.beginMove(t, "survivor", to)
		crashes := s.processes[[]string{from, to}[round%2]]
		time.Sleep(time.Duration(round) * 30 * time.Millisecond) //nolint:forbidigo // the moment of the crash is what differs
		crashes.crash(t)
		crashes.restart(t)
		s.host.kubectl(t, "wait", "--for=jsonpath={.status.shard}="+to, "space/survivor", "--timeout=180s") // the move is tried again
		check(round)
	}
	cancel()
	writing.Wait()
	check(-1)
	is := s.shardOf(t, "survivor")
	eventually(t, func() error { return expect("who has the files", strings.Join(s.dirsOf("survivor"), " "), is) })
	if len(written) < 100 {
		t.Errorf("only %d writes were acknowledged", len(written))
	}
}

// D5: a move to a shard that hangs costs the space nothing: it serves on, and when the move is withdrawn, all is as before. A space that is
// deleted while it moves is gone from both shards. A deleted space's retained store is found by the shard that has it.
func TestMovesThatDoNotEnd(t *testing.T) {
	t.Parallel()
	s := startShards(t, "unending", "sends", "hangs")
	s.create(t, "unmoved", "sends")
	client := s.through(t, "sends", "unmoved", "sends")
	l, stop := loaded(t, []*cluster{client})
	stopped := s.processes["hangs"]
	if err := stopped.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	s.beginMove(t, "unmoved", "hangs")
	eventually(t, func() error {
		l.mu.Lock()
		defer l.mu.Unlock()
		return expect("50 requests during the move", l.count >= 50, true)
	})
	s.host.kubectl(t, "patch", "space", "unmoved", "--subresource=status", "--type=merge", "--patch", `{"status":{"movingTo":null}}`)
	s.host.kubectl(t, "patch", "space", "unmoved", "--type=merge", "--patch", `{"spec":{"sleep":{"idleAfterSeconds":3600}}}`) // which waits for the move
	s.host.kubectl(t, "wait", "--for=jsonpath={.status.observedGeneration}=2", "space/unmoved", "--timeout=180s")
	stop()
	l.check(t)
	if err := stopped.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if is := s.shardOf(t, "unmoved"); is != "sends" {
		t.Errorf("the space is on %s", is)
	}

	s.beginMove(t, "unmoved", "hangs")
	s.host.kubectl(t, "delete", "space", "unmoved", "--wait", "--timeout=180s")
	eventually(t, func() error { return expect("who has the files", strings.Join(s.dirsOf("unmoved"), " "), "") })
	awaitGone(t, "the space's namespace", s.host.CoreV1().Namespaces().Get, "berth-unmoved")

	// Retained on one shard, a space of the same name goes on there.
	s.host.apply(t, fmt.Sprintf("apiVersion: berth.dev/v1alpha1\nkind: Space\nmetadata:\n  name: again\nspec:\n  platformName: %s\n  deletionPolicy: Retain\n", s.platform))
	s.host.kubectl(t, "patch", "space", "again", "--subresource=status", "--type=merge", "--patch", `{"status":{"shard":"sends"}}`)
	s.host.kubectl(t, "wait", "--for=condition=Ready", "space/again", "--timeout=180s")
	s.move(t, "again", "hangs")
	kept := s.through(t, "sends", "again", "hangs")
	must(kept.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{}))(t)
	s.host.kubectl(t, "delete", "space", "again", "--wait", "--timeout=180s")
	s.host.kubectl(t, "wait", "--namespace", s.platform, "--for=jsonpath={.status.retained[0]}=again", "shard/hangs", "--timeout=180s")
	s.operate(t)
	s.host.apply(t, fmt.Sprintf("apiVersion: berth.dev/v1alpha1\nkind: Space\nmetadata:\n  name: again\nspec:\n  platformName: %s\n", s.platform))
	s.host.kubectl(t, "wait", "--for=condition=Ready", "space/again", "--timeout=180s")
	if is := s.shardOf(t, "again"); is != "hangs" {
		t.Errorf("the new space is on %s, and the store on hangs", is)
	}
	after := s.through(t, "sends", "again", "hangs")
	must(after.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{}))(t)
	s.checkStopDuringAMove(t, "again", "hangs", "sends", after)
}

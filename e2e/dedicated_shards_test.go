// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/internal/testservers"
)

// podShards are shards that have a dedicated space in a pod, and what runs in place of that pod.
type podShards struct {
	*shards
	pod *podProcess
}

// podTemplate is what the chart has for such pods, without what no simulated node needs.
const podTemplate = `
metadata: {namespace: %s}
spec:
  template:
    spec:
      containers: [{name: berth, image: berth, args: [dedicated], volumeMounts: [{name: data, mountPath: /data}]}]
      volumes: [{name: configuration, secret: {}}]
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
`

// startPodShards starts shards with names on a platform of its own, which run dedicated spaces in pods. Like those of the chart, they have one
// URL for clients.
func startPodShards(t *testing.T, platform, space string, names ...string) *podShards {
	t.Helper()
	template := filepath.Join(t.TempDir(), "dedicated.yaml")
	if err := os.WriteFile(template, fmt.Appendf(nil, podTemplate, platform), 0o600); err != nil {
		t.Fatal(err)
	}
	p := &podProcess{release: platform, space: space, secret: t.TempDir(), data: t.TempDir(), at: []string{freeAddress(t), freeAddress(t)}}
	url := "https://" + freeAddress(t) // nobody listens there: clients of the test connect to the shards
	var all [][]string
	for _, name := range names {
		all = append(all, []string{name, "--advertise", url, "--dedicated-pods", template, "--dedicated-pods-at", strings.Join(append(p.at, p.data), ",")})
	}
	t.Cleanup(p.end)
	s := &podShards{startShardsWith(t, platform, all...), p}
	p.host = s.host
	t.Cleanup(func() {
		if t.Failed() && p.running != nil {
			t.Logf("what runs in place of the pod printed:\n%s", tailOf(p.running.output()))
		}
	})
	return s
}

// dedicate creates the dedicated space on a shard, with more fields of its spec.
func (s *podShards) dedicate(t *testing.T, shard, fields string) {
	t.Helper()
	space := s.pod.space
	s.host.apply(t, fmt.Sprintf("apiVersion: berth.dev/v1alpha1\nkind: Space\nmetadata: {name: %s}\nspec: {platformName: %s, isolation: Dedicated%s}\n", space, s.platform, fields))
	if shard != "" {
		s.host.kubectl(t, "patch", "space", space, "--subresource=status", "--type=merge", "--patch", fmt.Sprintf(`{"status":{"shard":%q}}`, shard))
	}
	s.pod.run(t)
	s.host.kubectl(t, "wait", "--for=condition=Ready", "space/"+space, "--timeout=90s")
}

// podState is what differs if a pod is replaced, or its process restarts.
type podState struct {
	uid, digest, incarnation string
	process                  *process
}

func (s *podShards) podState(t *testing.T) podState {
	t.Helper()
	name := "berth-" + s.pod.space + "-dedicated"
	set := must(s.host.AppsV1().StatefulSets(s.platform).Get(t.Context(), name, metav1.GetOptions{}))(t)
	secret := must(s.host.CoreV1().Secrets(s.platform).Get(t.Context(), name, metav1.GetOptions{}))(t)
	return podState{string(set.UID), fmt.Sprint(set.Spec.Template.Annotations), string(secret.Data["incarnation"]), s.pod.running}
}

// checkPod fails the test if the space has another pod than before, or its process has ended.
func (s *podShards) checkPod(t *testing.T, before podState) {
	t.Helper()
	if after := s.podState(t); after != before {
		t.Errorf("the pod was %+v, and is %+v", before, after)
	}
	select {
	case <-s.pod.running.done:
		t.Errorf("the process in place of the pod has ended: %s", s.pod.running.output())
	default:
	}
}

// mustHave waits until a shard alone has the files of the space, and those by which it manages the pod.
func (s *podShards) mustHave(t *testing.T, shard string) {
	t.Helper()
	eventually(t, func() error {
		err := expect("who has the files", strings.Join(s.dirsOf(s.pod.space), " "), shard)
		for name, process := range s.processes {
			if _, stat := os.Stat(filepath.Join(process.dir, "dedicated", s.pod.space, "incarnation")); err == nil && (stat == nil) != (name == shard) {
				err = fmt.Errorf("shard %s has what the pod is managed by: %v; it should be %s", name, stat == nil, shard)
			}
		}
		return err
	})
}

// D5, T9: a dedicated space with a pod moves between shards, back and forth, under the requests of clients of either, and of none. No request
// fails, no acknowledged write is lost, a watch goes on, the pod and its process stay, and one shard has what it is managed by.
func TestADedicatedSpaceMovesWithoutItsPod(t *testing.T) {
	t.Parallel()
	s := startPodShards(t, "pod-moving", "pod-wanders", "port", "starboard", "aft")
	s.dedicate(t, "port", "")
	before := s.podState(t)
	var clients []*cluster
	for _, through := range []string{"port", "starboard", "aft"} {
		clients = append(clients, s.direct(t, through, "pod-wanders", "port"), s.direct(t, through, "pod-wanders", "port"))
	}
	pod := clients[0].run(t, "default", newPod("stays"))
	hostPods := fmt.Sprint(s.hostPods(t, "berth-pod-wanders"))

	watching := watched(t, clients[2])
	l, stop := loaded(t, clients)
	for _, to := range []string{"starboard", "port", "aft", "starboard"} {
		s.move(t, "pod-wanders", to)
		s.mustHave(t, to)
	}
	stop()
	l.check(t)
	watching.check(t, l.written)
	s.checkPod(t, before)
	if now := must(clients[0].CoreV1().Pods("default").Get(t.Context(), "stays", metav1.GetOptions{}))(t); now.UID != pod.UID {
		t.Error("the pod of the tenant is another one")
	}
	if after := fmt.Sprint(s.hostPods(t, "berth-pod-wanders")); after != hostPods {
		t.Errorf("the pods on the host were %v and are %v", hostPods, after)
	}
	later := clients[0].namespace(t, "later")
	await(t, clients[0].CoreV1().ConfigMaps(later).Get, "kube-root-ca.crt", there) // which pods need
	// A space whose spec has become invalid runs as before, wherever it moves.
	s.host.kubectl(t, "patch", "space", "pod-wanders", "--type=merge", "--patch", `{"spec":{"limits":{"wathces":1}}}`)
	awaitReady(t, s.host, "pod-wanders", "False InvalidSpec")
	s.move(t, "pod-wanders", "port")
	must(clients[0].CoreV1().Namespaces().Get(t.Context(), "default", metav1.GetOptions{}))(t)
	s.checkPod(t, before)
	// The shard that has it now manages the pod: it follows the spec, and deletes the pod with the space.
	s.host.kubectl(t, "delete", "space", "pod-wanders", "--wait", "--timeout=120s")
	checkNoPod(t, s.host, s.pod)
	for name, process := range s.processes {
		if left := traces(t, s.host, process.dir, "pod-wanders"); len(left) > 0 {
			t.Errorf("on shard %s, it has left %q", name, left)
		}
	}
}

// D5: a crash of either shard at any moment of the move of a dedicated space leaves the space on one of the two, with its pod as it was.
func TestACrashDuringTheMoveOfADedicatedSpaceLosesNothing(t *testing.T) {
	t.Parallel()
	s := startPodShards(t, "pod-crashing", "pod-survives", "upper", "lower", "upright")
	s.dedicate(t, "upper", "")
	before := s.podState(t)
	client := s.direct(t, "upright", "pod-survives", "upper")
	w, stop := writing(t, client)
	for round := range 10 {
		from := s.shardOf(t, "pod-survives")
		to := map[string]string{"upper": "lower", "lower": "upper"}[from]
		s.beginMove(t, "pod-survives", to)
		crashes := s.processes[[]string{from, to}[round%2]]
		time.Sleep(time.Duration(round) * 30 * time.Millisecond) //nolint:forbidigo // the moment of the crash is what differs
		crashes.crash(t)
		crashes.restart(t)
		s.host.kubectl(t, "wait", "--for=jsonpath={.status.shard}="+to, "space/pod-survives", "--timeout=90s") // the move is tried again
		at := w.count()
		eventually(t, func() error { return expect("that it is written", w.count() > at+2, true) })
	}
	stop()
	w.mustHave(t, client)
	s.checkPod(t, before)
	s.mustHave(t, s.shardOf(t, "pod-survives"))
}

// D6, T9: a drain, and a shard that stops, move dedicated spaces with pods, too, and no request fails.
func TestADrainMovesDedicatedSpaces(t *testing.T) {
	t.Parallel()
	s := startPodShards(t, "pod-drained", "pod-drains", "drain-0", "drain-1")
	s.operate(t)
	s.dedicate(t, "", "")
	before := s.podState(t)
	from := s.shardOf(t, "pod-drains")
	to := map[string]string{"drain-0": "drain-1", "drain-1": "drain-0"}[from]
	client := s.direct(t, to, "pod-drains", from)
	l, stop := loaded(t, []*cluster{client, client})
	s.berth(t, "shard", "drain", from, "--timeout", "90s")
	s.mustHave(t, to)
	s.berth(t, "shard", "uncordon", from)
	s.berth(t, "space", "move", "pod-drains", "--to", from, "--timeout", "180s")
	s.mustHave(t, from)
	stops := s.processes[from]
	if err := stops.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if code := stops.exitCode(t); code != 0 {
		t.Errorf("the shard ended with %d", code)
	}
	if left := s.dirsOn(from); len(left) > 0 {
		t.Errorf("the shard ended with %v", left)
	}
	stop()
	l.check(t)
	s.checkPod(t, before)
}

// D4, T9, S3: a dedicated space with a store in a database server is managed by another shard when its own is dead. Its pod runs on, and what
// the pod has written to the database is as untrusted there as before. The dead shard manages nothing when it is back.
func TestADedicatedSpaceWithAStoreInAServerFailsOver(t *testing.T) {
	t.Parallel()
	server := testservers.PostgreSQL(t)
	s := startPodShards(t, "pod-killed", "pod-fails", "dying", "living")
	s.host.apply(t, fmt.Sprintf(`
apiVersion: v1
kind: Secret
metadata: {name: pod-fails-store, namespace: pod-killed, labels: {berth.dev/space: pod-fails}}
stringData: {dsn: %q}
`, server.Database(t)))
	s.dedicate(t, "dying", ", store: {type: PostgreSQL, secretName: pod-fails-store}")
	client := s.direct(t, "living", "pod-fails", "dying")
	pod := client.run(t, "default", newPod("stays"))
	before := s.podState(t)
	s.operate(t)
	w, stop := writing(t, client)
	eventually(t, func() error { return expect("that it is written", w.count() >= 20, true) })
	s.processes["dying"].crash(t)
	died := time.Now()
	s.host.kubectl(t, "wait", "--for=jsonpath={.status.shard}=living", "space/pod-fails", "--timeout=180s")
	at := w.count()
	eventually(t, func() error { return expect("that it is written", w.count() >= at+10, true) })
	t.Logf("it was written again after %s", time.Since(died))
	s.checkPod(t, before)
	s.processes["dying"].restart(t)
	s.mustHave(t, "living")
	// It moves as others do, its number of moves is saved in the database, and it fails over again.
	s.move(t, "pod-fails", "dying")
	s.mustHave(t, "dying")
	s.move(t, "pod-fails", "living")
	s.mustHave(t, "living")
	s.checkPod(t, before)
	s.processes["living"].crash(t)
	s.host.kubectl(t, "wait", "--for=jsonpath={.status.shard}=dying", "space/pod-fails", "--timeout=180s")
	s.processes["living"].restart(t)
	s.mustHave(t, "dying")
	at = w.count()
	eventually(t, func() error { return expect("that it is written", w.count() >= at+10, true) })
	stop()
	w.mustHave(t, client)
	s.checkPod(t, before)
	if now := must(client.CoreV1().Pods("default").Get(t.Context(), "stays", metav1.GetOptions{}))(t); now.UID != pod.UID {
		t.Error("the pod of the tenant is another one")
	}
	s.host.kubectl(t, "patch", "space", "pod-fails", "--type=merge", "-p", `{"spec":{"isolation":"Shared"}}`)
	awaitReady(t, s.host, "pod-fails", "True", "annotate the Space with berth.dev/trust-dedicated=true")
	s.host.kubectl(t, "annotate", "space", "pod-fails", "berth.dev/trust-dedicated=true")
	awaitIsolation(t, s.host, "pod-fails", "Shared")
	w.mustHave(t, client)
	checkNoPod(t, s.host, s.pod)
}

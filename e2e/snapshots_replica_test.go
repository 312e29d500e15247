// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// awaitReplicated waits until the condition Replicated of a space begins with "STATUS REASON", and returns the status of the space.
func awaitReplicated(t *testing.T, host *cluster, space, want string) (status v1alpha1.SpaceStatus) {
	t.Helper()
	eventually(t, func() error {
		var object v1alpha1.Space
		text, err := host.tryKubectl(t, "", "get", "space", space, "-o", "json")
		if err == nil {
			err = json.Unmarshal([]byte(text), &object)
		}
		if err != nil {
			return err
		}
		status = object.Status
		condition := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReplicated)
		if condition == nil {
			return errors.New("there is no condition Replicated")
		}
		if have := string(condition.Status) + " " + condition.Reason + ": " + condition.Message; !strings.HasPrefix(have, want) {
			return fmt.Errorf("the condition is %s", have)
		}
		return nil
	})
	return status
}

// D1, D2: when a process is killed and its volume is lost, a space is restored with every write that was acknowledged a second before the kill.
func TestALostVolumeLosesAtMostASecond(t *testing.T) {
	t.Parallel()
	bucket := filepath.Join(t.TempDir(), "bucket")
	b := start(t, "--snapshot-to", "file://"+bucket)
	host := b.host(t)
	applySpace(t, host, "copied", `{snapshots: {replication: Continuous, intervalSeconds: 0}}`)
	space := b.space(t, "copied")
	if status := awaitReplicated(t, host, "copied", "True UpToDate"); status.Replication.Revision == 0 || status.Replication.Time == nil {
		t.Errorf("the status is %+v", status.Replication)
	}

	acknowledged := writeUntilKilled(t, space, bucket, 5*time.Second)
	b.crash(t)
	if err := os.RemoveAll(filepath.Join(b.dir, "spaces", "copied")); err != nil {
		t.Fatal(err)
	}
	if list := berthDoes(t, "snapshot", "list", "copied", "--from", "file://"+bucket, "--data-dir", b.dir); !strings.Contains(list, "copied/latest") {
		t.Errorf("the replica is not listed:\n%s", list)
	}
	berthDoes(t, "snapshot", "restore", "copied/latest", "--from", "file://"+bucket, "--data-dir", b.dir)
	b.up(t, "--snapshot-to", "file://"+bucket)
	host = b.host(t)
	eventually(t, func() error { // the space, which has another endpoint now
		_, err := b.space(t, "copied").tryKubectl(t, "", "get", "namespaces")
		return err
	})
	there := map[string]bool{}
	for _, o := range must(b.space(t, "copied").CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}))(t).Items {
		there[o.Name] = true
	}
	acknowledged(there)
	b.space(t, "copied").kubectl(t, "create", "configmap", "after", "--from-literal=a=b")
	awaitReplicated(t, host, "copied", "True UpToDate")

	// Berth that runs without the store doesn't begin with an empty one, and restores it, too.
	b.stop(t, os.Interrupt)
	if err := os.RemoveAll(filepath.Join(b.dir, "spaces", "copied")); err != nil {
		t.Fatal(err)
	}
	b.up(t, "--snapshot-to", "file://"+bucket)
	serves := func() {
		t.Helper()
		berthDoes(t, "snapshot", "restore", "copied/latest", "--data-dir", b.dir)
		eventually(t, func() error {
			_, err := b.space(t, "copied").tryKubectl(t, "", "get", "configmap", "after")
			return err
		})
	}
	serves()

	// The object says that the space has moved since the replica was made, as after a move right before the loss, and then there is none any more.
	host = b.host(t)
	for _, moves := range []string{"3", ""} {
		b.stop(t, os.Interrupt)
		if err := os.RemoveAll(filepath.Join(b.dir, "spaces", "copied")); err != nil {
			t.Fatal(err)
		}
		b.up(t, "--snapshot-to", "file://"+bucket)
		host = b.host(t)
		if moves != "" {
			host.kubectl(t, "patch", "space", "copied", "--subresource=status", "--type=merge", "-p", `{"status":{"moves":`+moves+`}}`)
		} else {
			host.kubectl(t, "patch", "space", "copied", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
			host.kubectl(t, "delete", "space", "copied")
		}
		serves()
		host.apply(t, spaceObject("copied", `{snapshots: {replication: Continuous, intervalSeconds: 0}}`))
		b.space(t, "copied").kubectl(t, "create", "configmap", "after-moves"+moves, "--from-literal=a=b")
		eventually(t, func() error { // which has it
			text, err := host.tryKubectl(t, "", "get", "space", "copied", "-o", "jsonpath={.status.replication.missingWrites}{.status.conditions[?(@.type=='Replicated')].reason}")
			return errors.Join(err, expect("the state of the replica", text, v1alpha1.ReasonUpToDate))
		})
	}
}

// writeUntilKilled creates objects for a while. When it returns, Berth is to be killed at once. The result fails the test if those objects aren't
// there that were acknowledged a second before. If this machine takes its time for a write of a few bytes in the directory of the bucket,
// it is as much earlier, and two seconds at most.
func writeUntilKilled(t *testing.T, space *cluster, bucket string, during time.Duration) (acknowledged func(there map[string]bool)) {
	t.Helper()
	ctx, end := context.WithCancel(t.Context())
	var writers sync.WaitGroup
	var mu sync.Mutex
	at := map[string]time.Time{}
	stalls := &stalls{all: map[time.Time]time.Duration{}, began: time.Now()}
	writers.Go(func() { stalls.run(ctx, filepath.Dir(bucket)) })
	for w := range 4 {
		config := paced(space)
		if w == 0 {
			config.QPS = -1
		}
		client := must(kubernetes.NewForConfig(config))(t)
		writers.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				name := fmt.Sprintf("w%d-%05d", w, i)
				_, err := client.CoreV1().ConfigMaps("default").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"i": name}}, metav1.CreateOptions{})
				if err != nil {
					return // it was killed
				}
				mu.Lock()
				at[name] = time.Now()
				mu.Unlock()
			}
		})
	}
	began := time.Now()
	eventually(t, func() error {
		mu.Lock()
		defer mu.Unlock()
		early := 0
		for _, when := range at {
			if time.Since(when) > 3*time.Second { // earlier than what a lost volume may lose, on a busy machine
				early++
			}
		}
		if early < 100 || time.Since(began) < during {
			return fmt.Errorf("%d writes, %d of them early", len(at), early)
		}
		return nil
	})
	killed := time.Now()
	before := killed.Add(-time.Second - min(stalls.longest(killed.Add(-3*time.Second)), 2*time.Second))
	return func(there map[string]bool) {
		t.Helper()
		end()
		writers.Wait()
		early, lost, lostEarly := 0, 0, 0
		for name, when := range at {
			isEarly := when.Before(before)
			if isEarly {
				early++
			}
			if !there[name] {
				lost++
				if isEarly {
					lostEarly++
				}
			}
		}
		t.Logf("%d writes were acknowledged %s before the kill or earlier, of which %d are lost; of the later ones, %d", early, killed.Sub(before), lostEarly, lost-lostEarly)
		if lostEarly > 0 {
			t.Errorf("of %d writes that were acknowledged %s before the kill or earlier, %d are lost", early, killed.Sub(before), lostEarly)
		}
	}
}

// stalls are how long small writes to the disk take, and the waits until they begin.
type stalls struct {
	mu    sync.Mutex
	all   map[time.Time]time.Duration // by their ends
	began time.Time                   // when the next write is to begin
}

func (s *stalls) run(ctx context.Context, dir string) {
	const pause = 20 * time.Millisecond
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		if file, err := os.Create(filepath.Join(dir, "stall")); err == nil {
			_, _ = file.WriteString("x")
			_ = file.Sync()
			_ = file.Close()
		}
		s.mu.Lock()
		s.all[time.Now()] = time.Since(s.began)
		s.began = time.Now().Add(pause)
		s.mu.Unlock()
	}
}

func (s *stalls) longest(since time.Time) (longest time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	longest = max(0, time.Since(s.began)) // of the one that lasts
	for at, took := range s.all {
		if at.After(since) {
			longest = max(longest, took)
		}
	}
	return longest
}

// While the place of a replica can't be reached, writes go on, and the status says what would be lost.
func TestASpaceSaysThatItsReplicaIsBehind(t *testing.T) {
	t.Parallel()
	bucket := filepath.Join(t.TempDir(), "bucket")
	b := start(t, "--snapshot-to", "file://"+bucket)
	host := b.host(t)
	applySpace(t, host, "behind", `{snapshots: {replication: Continuous}}`)
	space := b.space(t, "behind")
	awaitReplicated(t, host, "behind", "True UpToDate")
	if err := errors.Join(os.Rename(bucket, bucket+".away"), os.WriteFile(bucket, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	space.kubectl(t, "create", "configmap", "meanwhile", "--from-literal=a=b")
	status := awaitReplicated(t, host, "behind", "False Unreachable: a lost volume loses ")
	if status.Replication.BehindSince == nil || status.Replication.MissingWrites == 0 {
		t.Errorf("the status is %+v", status.Replication)
	}
	if err := errors.Join(os.Remove(bucket), os.Rename(bucket+".away", bucket)); err != nil {
		t.Fatal(err)
	}
	awaitReplicated(t, host, "behind", "True UpToDate")
	berthDoes(t, "snapshot", "restore", "behind/latest", "--as", "copy-of-behind", "--data-dir", b.dir)
	if got := b.space(t, "copy-of-behind").kubectl(t, "get", "configmap", "meanwhile", "-o", "jsonpath={.data.a}"); got != "b" {
		t.Errorf("the copy has %q", got)
	}
	host.apply(t, spaceObject("behind", `{snapshots: {replication: None}}`))
	eventually(t, func() error {
		text, err := host.tryKubectl(t, "", "get", "space", "behind", "-o", "jsonpath={.status.replication}{.status.conditions[?(@.type=='Replicated')]}")
		return errors.Join(err, expect("the status without replication", text, ""))
	})
}

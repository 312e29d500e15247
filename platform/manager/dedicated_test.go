// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/metrics"
	"github.com/berth-dev/berth/platform/process"
	"github.com/berth-dev/berth/platform/spaceprocess"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/shard/dedicated"
)

// X4, T9: whoever is to be woken by berth_spaces{state="failed"} is so for spaces
// in processes of their own as well, whether these answer or not.
func TestSpacesInTheirOwnProcessesAreAmongTheMetrics(t *testing.T) {
	m := &Manager{shard: &shard.Shard{}, config: Options{Options: process.Options{DataDir: t.TempDir()}}}
	dirs := map[string]string{}
	for _, name := range []string{"broken", "fine"} {
		dirs[name] = t.TempDir()
		m.processes.add(name, dedicated.New(name, dirs[name], prepared, func() *exec.Cmd { return exec.Command("false") }, klog.Background()), 9)
	}

	serve, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	defer func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	commands := http.NewServeMux()
	commands.Handle("GET "+spaceprocess.MetricPath, control.Answer(func(*http.Request) (any, error) {
		return metrics.Space{Name: "another's", State: metrics.Awake, Ready: true, Store: &metrics.Store{File: 4096, Limit: 8192, Revision: 7}}, nil
	}))
	go func() {
		served <- dedicated.Serve(serve, dirs["fine"], http.NotFoundHandler(), commands, klog.Background())
	}()
	m.processes.get("broken").Start()
	defer func() {
		if err := m.processes.get("broken").Stop(context.Background()); err != nil {
			t.Error(err)
		}
	}()

	hostObjects := map[string]map[string]int{"broken": {"pods": 3}}
	var got []metrics.Space
	_ = wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) {
		got = m.dedicatedMetrics(hostObjects)
		return got[0].State == metrics.Failed && got[1].Ready, nil
	})
	want := []metrics.Space{
		{Name: "broken", State: metrics.Failed, HostObjects: hostObjects["broken"]},
		{Name: "fine", State: metrics.Awake, Ready: true, Store: &metrics.Store{File: 4096, Limit: 8192, Revision: 7}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("the processes' spaces are %+v, want %+v", got, want)
	}
	if names := slices.Sorted(slices.Values(m.Names())); !slices.Equal(names, []string{"broken", "fine"}) {
		t.Errorf("there are the spaces %q", names)
	}
}

func prepared(context.Context) error { return nil }

// B3: a space that can't be prepared is in its own condition, and is tried again;
// berth and the others run on. B8: processes are stopped at once.
func TestProcessesOfSpacesStartAndStopApartFromEachOther(t *testing.T) {
	ended := filepath.Join(t.TempDir(), "ended")
	if err := os.Mkdir(ended, 0o700); err != nil {
		t.Fatal(err)
	}
	// Each ends when both have been asked to.
	const script = `cat >/dev/null; : >"$0/$1"; until [ -e "$0/a" ] && [ -e "$0/b" ]; do sleep 0.02; done`
	m := &Manager{config: Options{Progress: func(string, ...any) {}}}
	for _, name := range []string{"a", "b"} {
		m.processes.add(name, dedicated.New(name, t.TempDir(), prepared, func() *exec.Cmd { return exec.Command("sh", "-c", script, ended, name) }, klog.Background()), 9)
	}
	var tries atomic.Int32
	m.processes.add("unprepared", dedicated.New("unprepared", t.TempDir(), func(context.Context) error {
		tries.Add(1)
		return errors.New("the host forbids it")
	}, func() *exec.Cmd { return exec.Command("false") }, klog.Background()), 9)
	for _, name := range []string{"a", "b", "unprepared"} {
		m.start(name)
		m.start(name) // the reconciler may be as fast as the first starts
	}
	_ = wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 2*time.Minute, true, func(context.Context) (bool, error) {
		return tries.Load() > 1, nil
	})
	ready := m.processes.get("unprepared").Status(t.Context()).Conditions[0]
	if ready.Reason != shard.ReasonFailed || !strings.Contains(ready.Message, "the host forbids it") || tries.Load() < 2 {
		t.Errorf("it is %s after %d tries: %s", ready.Reason, tries.Load(), ready.Message)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if m.processes.add("too-many", nil, 3) {
		t.Error("there are more than there may be")
	}
	m.stopDedicated(ctx)
	if ctx.Err() != nil {
		t.Error("one is stopped after the other")
	}
}

// S3: whoever takes over a process breaks neither the metrics nor the statuses of others.
func TestHostileAnswersOfAProcessAreAboutItsSpaceAlone(t *testing.T) {
	dir := t.TempDir()
	commands := http.NewServeMux()
	var answer atomic.Value
	answer.Store(`{}`)
	say := func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(answer.Load().(string))) }
	commands.HandleFunc("GET /spaces/{name}", say)
	commands.HandleFunc("GET "+spaceprocess.MetricPath, say)
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- dedicated.Serve(ctx, dir, http.NotFoundHandler(), commands, klog.Background()) }()
	defer func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	}()
	m := &Manager{}
	process := dedicated.New("evil", dir, prepared, func() *exec.Cmd { return exec.Command("false") }, klog.Background())
	m.processes.add("evil", process, 1)
	if err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		return process.Get(ctx, spaceprocess.MetricPath, &metrics.Space{}) == nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	for reason, said := range map[string]string{
		"nothing":        `{}`,
		"another's name": `{"Name":"good","name":"good","conditions":[]}`,
		"no state":       `{"State":"x\"}","HostObjects":{"a":1,"b":2}}`,
		"bad quantities": `{"State":"awake","Limits":[{"Quantity":-1},{"Quantity":100000},{"Quantity":1},{"Quantity":1}]}`,
		"no JSON":        strings.Repeat("[", 10_000),
		"endless":        `{"Name":"` + strings.Repeat("x", 8<<20) + `"}`,
	} {
		answer.Store(said)
		status := process.Status(t.Context())
		if status.Name != "evil" || len(status.Conditions) == 0 {
			t.Errorf("%s: the status is %+v", reason, status)
		}
		got := m.dedicatedMetrics(nil)
		if len(got) != 1 || got[0].Name != "evil" || got[0].HostObjects != nil || len(got[0].Limits) > 1 {
			t.Errorf("%s: the metrics are %+v", reason, got)
		}
	}
}

// S3: what somebody who took over a process of an older Berth's had the status hold goes with the next one.
func TestHostileConditionsOfEarlierAreForgotten(t *testing.T) {
	conditions := []metav1.Condition{{Type: "Ready"}, {Type: "Evil"}, {Type: "Synced"}, {Type: "Isolated"}, {Type: "isolated"}}
	var left []string
	for _, c := range slices.DeleteFunc(conditions, unknownCondition) {
		left = append(left, c.Type)
	}
	if !slices.Equal(left, []string{"Ready", "Synced", "Isolated"}) {
		t.Errorf("the conditions left are %v", left)
	}
}

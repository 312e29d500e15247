// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package spaceprocess

import (
	"context"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/platform/process"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/shard/dedicated"
)

// enforcing is the process of a space, as far as it is about what the space enforces, and the platform's end of it.
type enforcing struct {
	*enforcement
	platform *dedicated.Process
	puts     atomic.Int32
	fails    atomic.Bool
}

func owned(owner string) *access.State {
	return &access.State{Space: "alone", Tenant: "solar", Access: v1alpha1.Access{Owners: []v1alpha1.Owner{{Kind: v1alpha1.UserKind, Name: owner}}}}
}

// startEnforcing starts the process with what the platform wrote for it.
func startEnforcing(t *testing.T, wrote *access.State) *enforcing {
	t.Helper()
	dir := t.TempDir()
	data, err := EncodeAccess(wrote)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, AccessFile), data, 0o600); err != nil {
		t.Fatal(err)
	}
	d := &process.Dedicated{Space: "alone"}
	if err := d.Complete(); err != nil {
		t.Fatal(err)
	}
	e := &enforcing{}
	if e.enforcement, err = newEnforcement(d, dir); err != nil {
		t.Fatal(err)
	}
	commands := http.NewServeMux()
	e.serve(commands, func() *shard.Namespaces { return &shard.Namespaces{Count: 1, Names: []string{"a"}} })
	counted := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut {
			e.puts.Add(1)
			if e.fails.Load() {
				http.Error(w, "lost", http.StatusInternalServerError)
				return
			}
		}
		commands.ServeHTTP(w, r)
	})
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error, 1)
	go func() { served <- dedicated.Serve(ctx, dir, http.NotFoundHandler(), counted, klog.Background()) }()
	t.Cleanup(func() {
		stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	e.platform = dedicated.New("alone", dir, nil, func() *exec.Cmd { return nil }, klog.Background())
	if err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 2*time.Minute, true, func(ctx context.Context) (bool, error) {
		return e.platform.Get(ctx, dedicated.AccessPath, nil) == nil, nil
	}); err != nil {
		t.Fatal(err)
	}
	return e
}

func (e *enforcing) owner() string { return e.source.Get().Access.Owners[0].Name }

// O1, T9: a process starts with what its space enforces, and follows changes; a message is sent once, and again if it was lost.
func TestAProcessFollowsWhatItsSpaceEnforces(t *testing.T) {
	e := startEnforcing(t, owned("alice"))
	if e.owner() != "alice" {
		t.Errorf("it starts with the owner %s", e.owner())
	}
	for range 2 {
		said, err := e.platform.Enforce(t.Context(), owned("alice"))
		if err != nil || said.Namespaces == nil || said.Namespaces.Count != 1 || e.puts.Load() != 0 {
			t.Errorf("what it has is sent %d times, and it says %+v (%v)", e.puts.Load(), said, err)
		}
	}
	e.fails.Store(true)
	bob := owned("bob")
	if _, err := e.platform.Enforce(t.Context(), bob); err == nil || e.owner() != "alice" {
		t.Errorf("a lost message is not told, or the owner is %s", e.owner())
	}
	e.fails.Store(false)
	for range 2 {
		if _, err := e.platform.Enforce(t.Context(), bob); err != nil || e.owner() != "bob" || e.puts.Load() != 2 {
			t.Errorf("after %d messages, the owner is %s (%v)", e.puts.Load(), e.owner(), err)
		}
	}
	other := owned("eve")
	other.Space = "other"
	if _, err := e.platform.Enforce(t.Context(), other); err == nil || e.owner() != "bob" {
		t.Errorf("what another space enforces is taken: the owner is %s (%v)", e.owner(), err)
	}
}

// P1: published objects are not in what a process starts with, and it doesn't take them for deleted until it has them.
func TestAProcessGetsPublishedObjectsWhenItRuns(t *testing.T) {
	state := owned("alice")
	state.Published = []access.Published{{Publication: "policies", Object: &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "a"}, "data": map[string]any{"b": "c"},
	}}}}
	e := startEnforcing(t, state)
	if has := e.source.Get(); len(has.Published) > 0 || !has.PublishedUnknown || e.owner() != "alice" {
		t.Errorf("it starts with %+v", has)
	}
	if _, err := e.platform.Enforce(t.Context(), state); err != nil {
		t.Fatal(err)
	}
	if has := e.source.Get(); len(has.Published) != 1 || has.PublishedUnknown || has.Published[0].Object.GetName() != "a" {
		t.Errorf("it has %+v", has)
	}
}

// A space whose owners, or whether it is cordoned, are unknown does not start.
func TestAProcessDoesNotStartWithoutWhatItsSpaceEnforces(t *testing.T) {
	d := &process.Dedicated{Space: "alone"}
	if err := d.Complete(); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, data := range []string{"", "{", `{"Space": "other"}`} {
		if data != "" {
			if err := os.WriteFile(filepath.Join(dir, AccessFile), []byte(data), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := newEnforcement(d, dir); err == nil {
			t.Errorf("it starts with %q", data)
		}
	}
}

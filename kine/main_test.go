// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.uber.org/goleak"

	"github.com/berth-dev/berth/internal/testservers"
	"github.com/berth-dev/berth/kine"
)

// childEnv makes the test binary open the store it names and write to it until it is killed.
const childEnv = "KINE_TEST_CHILD"

func TestMain(m *testing.M) {
	if testservers.Serve() {
		return
	}
	if path := os.Getenv(childEnv); path != "" {
		run := runChild
		if os.Getenv(carelessEnv) != "" {
			run = runCareless
		}
		if err := run(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		testservers.Stop()
		os.Exit(code)
	}), goleak.IgnoreAnyFunction("github.com/berth-dev/berth/internal/testservers.(*Server).launch.func1"))
}

// childCacheEnv is the path of the child's cache.
const childCacheEnv = "KINE_TEST_CHILD_CACHE"

const childWriters = 8

// runChild prints each key once its write is acknowledged, and each snapshot once it is made. Keys and values tell who
// wrote them. Meanwhile the store is compacted, and let go of as if it were idle.
func runChild(path string) error {
	options := kine.Options{Path: path, Name: "child"}
	if text, ok := strings.CutPrefix(path, "{"); ok {
		options = kine.Options{Name: "demo", Path: os.Getenv(childCacheEnv), Server: &kine.Server{}}
		if err := json.Unmarshal([]byte("{"+text), options.Server); err != nil {
			return err
		}
	}
	s, err := kine.Open(context.Background(), options)
	if err != nil {
		return err
	}
	defer s.Close()
	fmt.Println("open")
	var wg sync.WaitGroup
	if options.Server == nil {
		wg.Go(func() { snapshots(s, path) })
	}
	wg.Go(func() { churn(s) })
	for w := range childWriters {
		wg.Go(func() {
			for i := 0; ; i++ {
				key := fmt.Sprintf("/registry/child/%d-%d-%d", os.Getpid(), w, i)
				resp, err := s.Client().Kubernetes.OptimisticPut(context.Background(), key, childValue(key), 0, kubernetes.PutOptions{})
				if err != nil || !resp.Succeeded {
					fmt.Fprintln(os.Stderr, key, resp, err)
					os.Exit(1)
				}
				fmt.Printf("%s %d\n", key, resp.Revision) // one write, unbuffered: whole, or not there
			}
		})
	}
	wg.Wait()
	return nil
}

func snapshots(s *kine.Store, path string) {
	for i := 0; ; i++ {
		snapshot := fmt.Sprintf("%s.snapshot-%d-%d", path, os.Getpid(), i)
		if err := s.Snapshot(context.Background(), snapshot); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		fmt.Printf("snapshot %s\n", snapshot)
		if i >= 2 { // some are enough
			_ = os.Remove(fmt.Sprintf("%s.snapshot-%d-%d", path, os.Getpid(), i-2))
		}
	}
}

// churn makes what can be compacted, and has it compacted.
func churn(s *kine.Store) {
	c := s.Client()
	for i := 0; ; i++ {
		resp, err := c.Put(context.Background(), "/registry/churn", strings.Repeat("x", 5000))
		if err == nil && i%50 == 49 {
			_, err = c.Compact(context.Background(), resp.Header.Revision)
			s.Release()
		}
		if err != nil && !errors.Is(err, rpctypes.ErrCompacted) { // the last 1000 are kept
			fmt.Fprintln(os.Stderr, "churn", err)
			os.Exit(1)
		}
	}
}

func childValue(key string) []byte { return []byte(strings.Repeat(key, 100)) }

// child is another process that has the store open.
type child struct {
	cmd *exec.Cmd
	out *bufio.Scanner
}

func startChild(t *testing.T, p place) *child {
	t.Helper()
	path := p.path
	if p.server != nil {
		text, err := json.Marshal(p.server)
		if err != nil {
			t.Fatal(err)
		}
		path = string(text)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+path, childCacheEnv+"="+p.path)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	return &child{cmd, bufio.NewScanner(out)}
}

// note records a write that the child has said to be acknowledged.
func (c *child) note(t *testing.T, acked map[string]int64) {
	key, rev, ok := strings.Cut(c.out.Text(), " ")
	if !ok || key == "snapshot" {
		return
	}
	var n int64
	if _, err := fmt.Sscan(rev, &n); err != nil {
		t.Errorf("child said %q", c.out.Text())
	}
	acked[key] = n
}

// stopped reports whether all threads of the process are stopped.
func (c *child) stopped(t *testing.T) bool {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", c.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	_, state, _ := strings.Cut(string(text), ") ")
	return strings.HasPrefix(state, "T")
}

// kill ends the process as it stands, and waits for it.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	for c.out.Scan() { // what it has still said
	}
	_ = c.cmd.Wait()
}

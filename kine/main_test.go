// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"go.etcd.io/etcd/client/v3/kubernetes"
	"go.uber.org/goleak"

	"github.com/berth-dev/berth/kine"
)

// childEnv makes the test binary open the store it names and write to it until it is killed.
const childEnv = "KINE_TEST_CHILD"

func TestMain(m *testing.M) {
	if path := os.Getenv(childEnv); path != "" {
		if err := runChild(path); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

const childWriters = 8

// runChild prints each key once its write is acknowledged. Keys and values tell who wrote them.
func runChild(path string) error {
	s, err := kine.Open(context.Background(), kine.Options{Path: path, Name: "child"})
	if err != nil {
		return err
	}
	defer s.Close()
	fmt.Println("open")
	var wg sync.WaitGroup
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

func childValue(key string) []byte { return []byte(strings.Repeat(key, 100)) }

// child is another process that has the store open.
type child struct {
	cmd *exec.Cmd
	out *bufio.Scanner
}

func startChild(t *testing.T, path string) *child {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childEnv+"="+path)
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

// kill ends the process as it stands, and waits for it.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	for c.out.Scan() { // what it has still said
	}
	_ = c.cmd.Wait()
}

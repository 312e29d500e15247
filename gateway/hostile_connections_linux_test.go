// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway_test

import (
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// open makes n connections from as many addresses as there are, and has use use each. It returns those that use didn't fail with.
func (a *attacked) open(t *testing.T, n, addresses int, protocol string, use func(net.Conn) error) (opened []net.Conn, failed int) {
	t.Helper()
	var mu sync.Mutex
	var next atomic.Int64
	var workers sync.WaitGroup
	for range 16 {
		workers.Go(func() {
			for i := next.Add(1); i <= int64(n); i = next.Add(1) {
				conn, err := a.connect(fmt.Sprintf("127.0.0.%d", 2+i%int64(addresses)), protocol)
				if err == nil {
					err = use(conn)
				}
				mu.Lock()
				if err == nil {
					opened = append(opened, conn)
				} else if failed++; failed < 4 {
					t.Logf("connection %d: %v", i, err)
				}
				mu.Unlock()
			}
		})
	}
	workers.Wait()
	t.Cleanup(func() {
		for _, c := range opened {
			_ = c.Close()
		}
	})
	return opened, failed
}

// S7, L3: 10,000 connections of one tenant.
func TestHostileConnectionsOfOneTenantLeaveOthersTheirs(t *testing.T) {
	a := startAttacked(t)
	a.serveVictim(t)
	before, _ := a.memory(t)
	opened, failed := a.open(t, 10_000, 10, "http/1.1", func(c net.Conn) error {
		code, err := ask(c, "of-eve", "/api/v1/pods")
		if err == nil && code != 200 {
			err = fmt.Errorf("code %d", code)
		}
		return err
	})
	now, _ := a.memory(t)
	t.Logf("%d connections opened, %d failed; %d KiB each", len(opened), failed, (now-before)/max(1, len(opened))>>10)
	a.survives(t, 512<<20)
}

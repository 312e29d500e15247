// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"strings"
	"syscall"
	"testing"
)

// useRecord is a record of berth usage --since.
type useRecord struct {
	Tenant, Space           string
	Requests                int64
	SentBytes               int64
	CPUHours, StoreGiBHours float64
	Calls                   []struct {
		Verb  string
		Code  int
		Count int64
	}
}

func usedBy(t *testing.T, b *berth, space string) (one useRecord) {
	t.Helper()
	out, stderr, code := runBerth(t, "usage", "-T", "--since", "1h", "-o", "json", "--data-dir", b.dir)
	if code != 0 {
		t.Fatalf("berth usage ends with %d: %s", code, stderr)
	}
	var all []useRecord
	if err := json.Unmarshal([]byte(out), &all); err != nil {
		t.Fatalf("%v:\n%s", err, out)
	}
	for _, one := range all {
		if one.Space == space {
			return one
		}
	}
	return useRecord{}
}

func deletions(u useRecord) (n int64) {
	for _, call := range u.Calls {
		if call.Verb == "delete" && call.Code == 404 {
			n += call.Count
		}
	}
	return n
}

// L2: berth usage --since prints what was requested of a space and what its pods used, and the same after a restart and after a crash.
func TestUseIsRecordedAcrossRestarts(t *testing.T) {
	t.Parallel()
	b := start(t)
	demo := b.demo(t)
	demo.run(t, "default", newPod("busy"))
	for range 3 {
		if out, err := demo.tryKubectl(t, "", "delete", "--raw", "/api/v1/namespaces/default/configmaps/missing"); err == nil {
			t.Fatalf("it exists: %s", out)
		}
	}
	eventually(t, func() error {
		if u := usedBy(t, b, "demo"); deletions(u) != 3 || u.SentBytes == 0 || u.CPUHours <= 0 || u.StoreGiBHours <= 0 {
			return fmt.Errorf("recorded %+v", u)
		}
		return nil
	})
	before := usedBy(t, b, "demo")
	b.stop(t, syscall.SIGTERM)
	b.up(t)
	if after := usedBy(t, b, "demo"); deletions(after) != 3 || after.CPUHours < before.CPUHours || after.Requests < before.Requests {
		t.Errorf("after a restart %+v, before %+v", after, before)
	}
	b.crash(t)
	b.up(t)
	if after := usedBy(t, b, "demo"); deletions(after) != 3 || after.Requests < before.Requests {
		t.Errorf("after a crash %+v, before %+v", after, before)
	}
	if out, _, _ := runBerth(t, "usage", "--since", "1h", "-o", "wide", "--data-dir", b.dir); !strings.HasPrefix(out, "TENANT") || !strings.Contains(out, "demo") {
		t.Errorf("printed:\n%s", out)
	}
}

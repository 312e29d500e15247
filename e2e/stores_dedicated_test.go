// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// credentialsOf returns the user and the password in a DSN.
func credentialsOf(dsn string) string {
	userinfo, _, _ := strings.Cut(dsn, "@")
	return userinfo[strings.LastIndex(userinfo, "/")+1:]
}

// awaitIsolation waits until a space runs as its spec says.
func awaitIsolation(t *testing.T, host *cluster, space, isolation string) {
	t.Helper()
	eventually(t, func() error {
		return expect("the isolation of space "+space, host.kubectl(t, "get", "space", space, "-o", "jsonpath={.status.isolation}"), isolation)
	})
	awaitReady(t, host, space, "True")
}

// cell is a space whose store is in a database server.
type cell struct {
	name, kind, dsn string
	left            func(context.Context, string) (int, error)
	foreign         []string // credentials of other spaces, and of an admin
}

func (c *cell) isolate(t *testing.T, host *cluster, isolation string) {
	t.Helper()
	host.kubectl(t, "patch", "space", c.name, "--type=merge", "-p", `{"spec":{"isolation":"`+isolation+`"}}`)
	awaitIsolation(t, host, c.name, isolation)
}

// process returns the ID of the process of the space.
func (c *cell) process(t *testing.T, b *berth) int {
	t.Helper()
	for _, pid := range childrenOf(t, b.Pid) {
		if line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid)); err == nil && strings.Contains(string(line), "/dedicated/"+c.name+"/") {
			return pid
		}
	}
	t.Fatalf("space %s has no process", c.name)
	return 0
}

// checkGiven checks what somebody finds who takes over the process: the credentials of this space's database, in one file, and no others.
func (c *cell) checkGiven(t *testing.T, b *berth) {
	t.Helper()
	pid := c.process(t, b)
	files := []string{fmt.Sprintf("/proc/%d/environ", pid), fmt.Sprintf("/proc/%d/cmdline", pid), filepath.Join(b.dir, "berth.log")}
	for _, dir := range []string{"dedicated", "spaces"} {
		err := filepath.WalkDir(filepath.Join(b.dir, dir, c.name), func(path string, entry os.DirEntry, err error) error {
			if err == nil && entry.Type().IsRegular() {
				files = append(files, path)
			}
			return nil //nolint:nilerr // a file that is replaced
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	var has []string
	for _, path := range files {
		data, err := os.ReadFile(path)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(data), credentialsOf(c.dsn)) {
			has = append(has, filepath.Base(path))
		}
		for _, foreign := range c.foreign {
			if strings.Contains(string(data), foreign) {
				t.Errorf("%s has the credentials %s of another space", path, foreign)
			}
		}
	}
	if !slices.Equal(has, []string{"store.json"}) {
		t.Errorf("the credentials are in %q", has)
	}
}

// D4, T9: a space with a store in a database server may have a process of its own. The process gets the credentials of this space alone. It
// loses no acknowledged write when it is killed. The space keeps its objects, and their resource versions, on the way there and back.
func TestADedicatedSpaceMayHaveAStoreInADatabaseServer(t *testing.T) {
	t.Parallel()
	b := start(t, "--store-secrets", "default", "--snapshot-to", "file://"+filepath.Join(t.TempDir(), "bucket"))
	host := b.host(t)
	dsns := map[string]string{}
	for kind, in := range storesIn {
		t.Run("start "+kind, func(t *testing.T) { dsns[kind] = in.start(t).Database(t) })
	}
	for kind, dsn := range dsns {
		c := &cell{name: "cell-" + strings.ToLower(kind), kind: kind, dsn: dsn, left: storesIn[kind].left}
		for other, dsn := range dsns {
			if other != kind {
				c.foreign = append(c.foreign, credentialsOf(dsn))
			}
		}
		t.Run(kind, func(t *testing.T) { c.check(t, b, host) })
	}
}

// snapshotsOf returns how many snapshots a space has.
func snapshotsOf(t *testing.T, b *berth, space string) int {
	t.Helper()
	return strings.Count(berthDoes(t, "snapshot", "list", "--data-dir", b.dir), space+"/")
}

func (c *cell) check(t *testing.T, b *berth, host *cluster) {
	t.Helper()
	host.apply(t, stored(c.name, c.kind, c.dsn))
	awaitSpaceReady(t, host, c.name)
	space := b.space(t, c.name)
	kept := must(space.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{}))(t)
	checkKept := func(when string) {
		t.Helper()
		still := must(space.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{}))(t)
		if still.UID != kept.UID || still.ResourceVersion != kept.ResourceVersion {
			t.Errorf("%s: the object is %s at %s, want %s at %s", when, still.UID, still.ResourceVersion, kept.UID, kept.ResourceVersion)
		}
	}
	c.isolate(t, host, "Dedicated")
	checkKept("in its own process")
	c.checkGiven(t, b)
	if out := host.kubectl(t, "get", "space", c.name, "-o", "wide"); !strings.Contains(out, c.kind) || !strings.Contains(out, "Dedicated") {
		t.Errorf("the columns of the space are %s", out)
	}

	w, stop := writing(t, space, space)
	eventually(t, func() error { return expect("that it is written", w.count() > 20, true) })
	if err := syscall.Kill(c.process(t, b), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	at := w.count()
	eventually(t, func() error { return expect("that it is written after the kill", w.count() > at+20, true) })
	stop()
	w.mustHave(t, space)

	name := strings.TrimSuffix(strings.TrimPrefix(berthDoes(t, "snapshot", "create", c.name, "--data-dir", b.dir), "snapshot/"), " taken\n")
	space.kubectl(t, "create", "configmap", "later")
	berthDoes(t, "snapshot", "restore", name, "--data-dir", b.dir)
	awaitGone(t, "what came after the snapshot", space.CoreV1().ConfigMaps("default").Get, "later")
	berthDoes(t, "rotate", c.name, "--ca", "--data-dir", b.dir)
	space = b.space(t, c.name)
	w.mustHave(t, space)
	kept = must(space.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{}))(t)

	c.isolate(t, host, "Shared")
	checkKept("back in the shared process")
	w.mustHave(t, space)
	if files := must(filepath.Glob(filepath.Join(b.dir, "dedicated", c.name, "*")))(t); len(files) > 0 {
		t.Errorf("the process has left %q", files)
	}

	c.isolate(t, host, "Dedicated")
	host.kubectl(t, "patch", "space", c.name, "--type=merge", "-p", `{"spec":{"deletionPolicy":"Snapshot"}}`)
	before := snapshotsOf(t, b, c.name)
	host.kubectl(t, "delete", "space", c.name, "--timeout=120s")
	if after := snapshotsOf(t, b, c.name); after <= before {
		t.Errorf("there are %d snapshots of the deleted space, and were %d", after, before)
	}
	if n, err := c.left(t.Context(), c.dsn); err == nil {
		t.Errorf("a deleted space has left %d rows in its database", n)
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/berth-dev/berth/internal/testservers"
)

type storeIn struct {
	start func(testing.TB) *testservers.Server
	// left returns how many rows a DSN's database has, or an error if it has no place for any.
	left func(ctx context.Context, dsn string) (int, error)
}

// storesIn are the types of database servers.
var storesIn = map[string]storeIn{
	"PostgreSQL": {testservers.PostgreSQL, rowsIn("pgx")},
	"MySQL":      {testservers.MariaDB, rowsIn("mysql")},
	"Etcd":       {testservers.Etcd, keysIn},
	"NATS":       {testservers.NATS, messagesIn},
	"S3":         {testservers.S3, objectsIn},
}

func rowsIn(driver string) func(context.Context, string) (int, error) {
	return func(ctx context.Context, dsn string) (n int, err error) {
		db, err := sql.Open(driver, dsn)
		if err != nil {
			return 0, err
		}
		defer db.Close()
		err = db.QueryRowContext(ctx, "SELECT COUNT(*) FROM kine").Scan(&n)
		return n, err
	}
}

func messagesIn(ctx context.Context, dsn string) (int, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return 0, err
	}
	password, _ := u.User.Password()
	conn, err := nats.Connect("nats://"+u.Host, nats.UserInfo(u.User.Username(), password))
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return 0, err
	}
	stream, err := js.Stream(ctx, strings.TrimPrefix(u.Path, "/"))
	if err != nil {
		return 0, err
	}
	return int(stream.CachedInfo().State.Msgs), nil
}

func objectsIn(ctx context.Context, dsn string) (n int, err error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return 0, err
	}
	secret, _ := u.User.Password()
	client, err := minio.New(u.Host, &minio.Options{Creds: credentials.NewStaticV4(u.User.Username(), secret, ""), Region: "us-east-1"})
	if err != nil {
		return 0, err
	}
	bucket, prefix, _ := strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	for o := range client.ListObjectsIter(ctx, bucket, minio.ListObjectsOptions{Prefix: prefix + "/", Recursive: true}) {
		if o.Err != nil {
			return 0, o.Err
		}
		n++
	}
	if n == 0 {
		err = errors.New("there are no objects")
	}
	return n, err
}

func keysIn(ctx context.Context, dsn string) (int, error) {
	u, err := url.Parse(dsn)
	if err != nil {
		return 0, err
	}
	password, _ := u.User.Password()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + u.Host}, Username: u.User.Username(), Password: password, Logger: zap.NewNop()})
	if err != nil {
		return 0, err
	}
	defer client.Close()
	keys, err := client.Get(ctx, u.Path+"/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err == nil && len(keys.Kvs) == 0 {
		err = errors.New("there are no keys")
	}
	if err != nil {
		return 0, err
	}
	return len(keys.Kvs), nil
}

// stored is a space with a store in a database server, and the Secret of that.
func stored(space, kind, dsn string) string {
	return fmt.Sprintf(`
apiVersion: v1
kind: Secret
metadata: {name: %[1]s-store, labels: {berth.dev/space: %[1]s}}
stringData: {dsn: %[3]q}
---
apiVersion: berth.dev/v1alpha1
kind: Space
metadata: {name: %[1]s}
spec: {store: {type: %[2]s, secretName: %[1]s-store}}
`, space, kind, dsn)
}

func awaitSpaceReady(t *testing.T, host *cluster, space string) {
	t.Helper()
	host.kubectl(t, "wait", "--for=condition=Ready", "space/"+space, "--timeout=90s")
}

// D2, D4: a space whose store is in a database server runs pods, sleeps, wakes, is restored from snapshots, also from those of
// another type of store, and leaves nothing there.
func TestASpaceWithAStoreInADatabaseServerIsLikeAnyOther(t *testing.T) {
	t.Parallel()
	b := start(t, "--store-secrets", "default", "--snapshot-to", "file://"+filepath.Join(t.TempDir(), "bucket"))
	host := b.host(t)
	b.demo(t).kubectl(t, "create", "configmap", "settings", "--from-literal=colour=green")
	for kind, in := range storesIn {
		t.Run(kind, func(t *testing.T) {
			dsn, remote := in.start(t).Database(t), "remote-"+strings.ToLower(kind)
			host.apply(t, stored(remote, kind, dsn))
			awaitSpaceReady(t, host, remote)
			if out := host.kubectl(t, "get", "space", remote, "-o", "wide"); !strings.Contains(out, kind) {
				t.Errorf("the columns of the space are %s", out)
			}
			space := b.space(t, remote)
			space.kubectl(t, "create", "configmap", "settings", "--from-literal=colour=blue")
			space.kubectl(t, "create", "deployment", "web", "--image=nginx")
			space.kubectl(t, "rollout", "status", "deployment/web", "--timeout=90s")

			colour := func(of *cluster) string {
				out, err := of.tryKubectl(t, "", "get", "configmap", "settings", "-o", "jsonpath={.data.colour}")
				if err != nil {
					return err.Error()
				}
				return out
			}
			b.command(t, "sleep", remote)
			name := strings.TrimSuffix(strings.TrimPrefix(berthDoes(t, "snapshot", "create", remote, "--data-dir", b.dir), "snapshot/"), " taken\n")
			if got := colour(space); got != "blue" {
				t.Errorf("after a sleep, the colour is %s", got)
			}
			space.kubectl(t, "patch", "configmap", "settings", "-p", `{"data":{"colour":"red"}}`)
			berthDoes(t, "snapshot", "restore", name, "--data-dir", b.dir)
			eventually(t, func() error { return expect("the colour after a restore", colour(space), "blue") })

			// The store of another type becomes that of this space.
			other := strings.TrimSuffix(strings.TrimPrefix(berthDoes(t, "snapshot", "create", "demo", "--data-dir", b.dir), "snapshot/"), " taken\n")
			berthDoes(t, "snapshot", "restore", other, "--as", remote, "--replace", "--data-dir", b.dir)
			eventually(t, func() error { return expect("the colour of the other space", colour(b.space(t, remote)), "green") })

			host.kubectl(t, "patch", "space", remote, "--type=merge", "-p", `{"spec":{"deletionPolicy":"Snapshot"}}`)
			host.kubectl(t, "delete", "space", remote, "--timeout=90s")
			if list := berthDoes(t, "snapshot", "list", "--data-dir", b.dir); strings.Count(list, remote+"/") < 2 {
				t.Errorf("the last snapshot of a deleted space is not there: %s", list)
			}
			host.kubectl(t, "get", "secret", remote+"-store") // it is the admin's
			if n, err := in.left(t.Context(), dsn); err == nil {
				t.Errorf("a deleted space has left %d rows in its database", n)
			}
		})
	}
}

// D4: a space goes on after a restart of its database server, and its status says why it can't be used meanwhile. The test is not
// parallel, because others use the servers.
func TestASpaceOutlivesAnOutageOfItsDatabaseServer(t *testing.T) {
	b := start(t, "--store-secrets", "default")
	host, servers := b.host(t), map[string]*testservers.Server{}
	for kind, in := range storesIn {
		t.Run("start "+kind, func(t *testing.T) {
			server, name := in.start(t), "outage-"+strings.ToLower(kind)
			host.apply(t, stored(name, kind, server.Database(t)))
			awaitSpaceReady(t, host, name)
			servers[name] = server
		})
	}
	for _, server := range servers {
		server.Kill()
	}
	for name := range servers {
		t.Run(name+" without its server", func(t *testing.T) {
			eventually(t, func() error {
				if _, err := b.space(t, name).tryKubectl(t, "", "create", "configmap", "lost"); err == nil {
					return errors.New("a write without a server succeeded")
				}
				return nil
			})
			eventually(t, func() error {
				out := host.kubectl(t, "get", "space", name, "-o", `jsonpath={.status.conditions[?(@.type=="StoreHealthy")].reason}`)
				return expect("the reason of the condition StoreHealthy", out, "Unreachable")
			})
		})
	}
	for _, server := range servers {
		if err := server.Start(); err != nil {
			t.Fatal(err)
		}
	}
	for name := range servers {
		t.Run(name+" when the server is back", func(t *testing.T) {
			eventually(t, func() error {
				_, err := b.space(t, name).tryKubectl(t, "", "create", "configmap", "after")
				return err
			})
		})
	}
}

// A space can't have the Secret or the database of another one, and its status says so, without the password.
func TestHostileASpaceDoesNotGetTheStoreOfAnother(t *testing.T) {
	t.Parallel()
	server := testservers.PostgreSQL(t)
	dsn := server.Database(t)
	b := start(t, "--store-secrets", "default")
	host := b.host(t)
	host.apply(t, stored("victim", "PostgreSQL", dsn))
	awaitSpaceReady(t, host, "victim")
	b.space(t, "victim").kubectl(t, "create", "configmap", "own")

	host.apply(t, `
apiVersion: berth.dev/v1alpha1
kind: Space
metadata: {name: thief}
spec: {store: {type: PostgreSQL, secretName: victim-store}}
`)
	host.apply(t, stored("lost", "PostgreSQL", dsn))
	host.apply(t, stored("nowhere", "PostgreSQL", "postgres://u:hunter2@127.0.0.1:1/db"))
	for space, says := range map[string]string{"thief": "not for this space", "lost": "belongs to another space", "nowhere": "127.0.0.1:1"} {
		eventually(t, func() error {
			out := host.kubectl(t, "get", "space", space, "-o", `jsonpath={.status.conditions[?(@.type=="StoreHealthy")]}`)
			if strings.Contains(out, "hunter2") {
				t.Fatalf("the status of %s has the password: %s", space, out)
			}
			if !strings.Contains(out, says) || !strings.Contains(out, "Unreachable") {
				return fmt.Errorf("the condition of %s is %s, want it to say %q", space, out, says)
			}
			return nil
		})
	}
	b.space(t, "victim").kubectl(t, "get", "configmap", "own") // it is not disturbed
	for _, refused := range []string{
		"spec: {store: {type: PostgreSQL}}", "spec: {store: {type: SQLite, secretName: a}}", "spec: {store: {type: Other, secretName: a}}",
	} {
		if out, err := host.tryKubectl(t, "apiVersion: berth.dev/v1alpha1\nkind: Space\nmetadata: {name: refused}\n"+refused, "create", "-f", "-"); err == nil {
			t.Errorf("%s: %s", refused, out)
		}
	}
	if out, err := host.tryKubectl(t, "", "patch", "space", "victim", "--type=merge", "-p", `{"spec":{"store":null}}`); err == nil {
		t.Errorf("the type of a store was changed: %s", out)
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine_test

import (
	"context"
	"database/sql"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/kine/dbms"
	"github.com/berth-dev/berth/kine/mirror"
	"github.com/berth-dev/berth/kine/s3"
)

// advance takes the store of a place over, as far as the next write or check of another process can notice.
func (p place) advance(t *testing.T) {
	t.Helper()
	if p.server.Type == kine.Etcd {
		client, prefix := p.etcd(t)
		resp, err := client.Get(t.Context(), prefix+"meta")
		if err != nil || len(resp.Kvs) == 0 {
			t.Fatal(resp, err)
		}
		meta := map[string]any{}
		if err := json.Unmarshal(resp.Kvs[0].Value, &meta); err != nil {
			t.Fatal(err)
		}
		meta["epoch"] = meta["epoch"].(float64) + 1
		text, err := json.Marshal(meta)
		if err == nil {
			_, err = client.Put(t.Context(), prefix+"meta", string(text))
		}
		if err != nil {
			t.Fatal(err)
		}
		return
	}
	if p.server.Type == kine.NATS {
		js, stream := p.nats(t)
		last, err := js.LastMsg(t.Context(), stream)
		if err != nil {
			t.Fatal(err)
		}
		meta := map[string]any{}
		if err := json.Unmarshal([]byte(last.Header.Get("Berth-State")), &meta); err != nil {
			t.Fatal(err)
		}
		meta["epoch"] = meta["epoch"].(float64) + 1
		text, err := json.Marshal(meta)
		if err != nil {
			t.Fatal(err)
		}
		js.publish(t, &natsclient.Msg{Subject: stream + ".meta", Header: natsclient.Header{"Berth-State": {string(text)}}})
		return
	}
	if p.server.Type == kine.S3 {
		p.takeOverS3(t)
		return
	}
	p.exec(t, "UPDATE berth_owner SET epoch = epoch + 1")
}

// occupy makes a place that of another program.
func (p place) occupy(t *testing.T) {
	t.Helper()
	if p.server.Type == kine.Etcd {
		client, prefix := p.etcd(t)
		if _, err := client.Put(t.Context(), prefix+"other", "1"); err != nil {
			t.Fatal(err)
		}
		return
	}
	if p.server.Type == kine.NATS {
		js, stream := p.nats(t)
		if _, err := js.CreateStream(t.Context(), jetstream.StreamConfig{Name: stream, Subjects: []string{stream + ".>"}, MaxMsgsPerSubject: 1, AllowAtomicPublish: true}); err != nil {
			t.Fatal(err)
		}
		js.publish(t, &natsclient.Msg{Subject: stream + ".other"})
		return
	}
	if p.server.Type == kine.S3 {
		p.putS3(t, "other")
		return
	}
	p.exec(t, "CREATE TABLE kine (id INTEGER)")
}

func (p place) exec(t *testing.T, statement string) {
	t.Helper()
	driver := map[kine.ServerType]string{kine.PostgreSQL: "pgx", kine.MySQL: "mysql"}[p.server.Type]
	db, err := sql.Open(driver, p.server.DSN)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.ExecContext(t.Context(), statement); err != nil {
		t.Fatal(err)
	}
}

// etcd returns a client with the rights of a place, and the prefix of its keys.
func (p place) etcd(t *testing.T) (*clientv3.Client, string) {
	t.Helper()
	u, err := url.Parse(p.server.DSN)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{"http://" + u.Host}, Username: u.User.Username(), Password: password, Logger: zap.NewNop()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close() }) // which returns that its context has ended
	return client, u.Path + "/"
}

// natsStreams is a client of NATS.
type natsStreams struct{ jetstream.JetStream }

// LastMsg returns the last message of a stream.
func (n natsStreams) LastMsg(ctx context.Context, stream string) (*jetstream.RawStreamMsg, error) {
	s, err := n.Stream(ctx, stream)
	if err != nil {
		return nil, err
	}
	return s.GetMsg(ctx, s.CachedInfo().State.LastSeq)
}

func (n natsStreams) publish(t *testing.T, msg *natsclient.Msg) {
	t.Helper()
	if _, err := n.PublishMsg(t.Context(), msg); err != nil {
		t.Fatal(err)
	}
}

// nats returns a client, and the name of a place's stream.
func (p place) nats(t *testing.T) (natsStreams, string) {
	t.Helper()
	u, err := url.Parse(p.server.DSN)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	conn, err := natsclient.Connect("nats://"+u.Host, natsclient.UserInfo(u.User.Username(), password))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		t.Fatal(err)
	}
	return natsStreams{js}, strings.TrimPrefix(u.Path, "/")
}

// takeOverS3 takes the log of a place over.
func (p place) takeOverS3(t *testing.T) {
	t.Helper()
	log, err := s3.New(mirror.Config{DSN: p.server.DSN}, dbms.Owner{Space: "demo", ID: p.server.ID})
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	if _, err := log.TakeOver(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
}

// s3 returns a client, and the bucket and the prefix of a place.
func (p place) s3(t *testing.T) (client *minio.Client, bucket, prefix string) {
	t.Helper()
	u, err := url.Parse(p.server.DSN)
	if err != nil {
		t.Fatal(err)
	}
	secret, _ := u.User.Password()
	client, err = minio.New(u.Host, &minio.Options{Creds: credentials.NewStaticV4(u.User.Username(), secret, ""), Region: "us-east-1"})
	if err != nil {
		t.Fatal(err)
	}
	bucket, prefix, _ = strings.Cut(strings.TrimPrefix(u.Path, "/"), "/")
	return client, bucket, prefix + "/"
}

// putS3 writes an object below the prefix of a place.
func (p place) putS3(t *testing.T, name string) {
	t.Helper()
	client, bucket, prefix := p.s3(t)
	if _, err := client.PutObject(t.Context(), bucket, prefix+name, strings.NewReader("1"), 1, minio.PutObjectOptions{}); err != nil {
		t.Fatal(err)
	}
}

// keysS3 returns the keys of the objects below the prefix of a place.
func (p place) keysS3(t *testing.T) (keys []string) {
	t.Helper()
	client, bucket, prefix := p.s3(t)
	for o := range client.ListObjectsIter(t.Context(), bucket, minio.ListObjectsOptions{Prefix: prefix, Recursive: true}) {
		if o.Err != nil {
			t.Fatal(o.Err)
		}
		keys = append(keys, o.Key)
	}
	return keys
}

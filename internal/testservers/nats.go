// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package testservers

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	natsserver "github.com/nats-io/nats-server/v2/server"
	natsclient "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// natsEnv has a test binary be a NATS server with this directory; natsAddressEnv is where it listens.
	natsEnv, natsAddressEnv = "BERTH_TEST_NATS", "BERTH_TEST_NATS_ADDRESS"
	natsPassword            = "natspassword"
	// natsStreams is how many streams the server has a user for.
	natsStreams = 512
)

// natsUsed counts the streams that tests use.
var natsUsed atomic.Int64 //nolint:gochecknoglobals // of the one server in a test binary

// natsUsers are the users, each with the rights to a stream of the same name, as the guide says.
func natsUsers() []*natsserver.User {
	var users []*natsserver.User
	for i := range natsStreams {
		name := natsStream(int64(i))
		users = append(users, &natsserver.User{Username: name, Password: natsPassword, Permissions: &natsserver.Permissions{
			Publish: &natsserver.SubjectPermission{Allow: []string{
				name + ".>", "$JS.API.INFO", "$JS.API.STREAM.*." + name, "$JS.API.STREAM.MSG.*." + name,
				"$JS.API.CONSUMER.*." + name, "$JS.API.CONSUMER.*." + name + ".>", "$JS.API.CONSUMER.MSG.NEXT." + name + ".>",
			}},
			Subscribe: &natsserver.SubjectPermission{Allow: []string{"_INBOX.>"}},
		}})
	}
	return users
}

func natsStream(i int64) string { return "STREAM_" + strconv.FormatInt(i, 10) }

//nolint:gochecknoglobals // one server in a test binary
var nats = newNATS()

func newNATS() *Server {
	return &Server{
		name:    "NATS",
		prepare: func(*Server) error { return nil },
		command: func(s *Server) *exec.Cmd {
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), natsEnv+"="+filepath.Join(s.dir, "data"), natsAddressEnv+"="+s.address(), durableEnv+"="+strconv.FormatBool(s.durable), "GOMEMLIMIT=512MiB")
			cmd.Env = append(cmd.Env, s.member.environment()...)
			return cmd
		},
		admin: func(s *Server) (admin, error) { return natsAdmin{s}, nil },
		dsn: func(s *Server, _, _ string) string {
			name := natsStream(natsUsed.Add(1))
			return fmt.Sprintf("nats://%s:%s@%s/%s", name, natsPassword, s.address(), name)
		},
	}
}

// NATS returns a running NATS server with JetStream. Each database is the name of a stream, which doesn't exist yet.
func NATS(t testing.TB) *Server {
	t.Helper()
	return nats.start(t)
}

func serveNATS(dir, address string, durable bool) error {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return err
	}
	options := &natsserver.Options{
		Host: host, Users: natsUsers(), NoSigs: true, JetStream: true, StoreDir: dir,
		MaxPayload: 4 << 20, JetStreamMaxMemory: 64 << 20, JetStreamMaxStore: 2 << 30,
		SyncAlways: durable,
	}
	if options.Port, err = strconv.Atoi(port); err != nil {
		return err
	}
	own, err := memberOfEnvironment()
	if err != nil {
		return err
	}
	if own != nil {
		at := own.peerURLs("nats")
		options.ServerName, options.Routes = memberName(own.index), at
		options.Cluster = natsserver.ClusterOpts{Name: "berth", Host: host}
		if options.Cluster.Port, err = strconv.Atoi(at[own.index].Port()); err != nil {
			return err
		}
	}
	server, err := natsserver.NewServer(options)
	if err != nil {
		return err
	}
	server.ConfigureLogger()
	server.Start()
	server.WaitForShutdown()
	return errors.New("the server has ended")
}

// natsAdmin is a user of the server.
type natsAdmin struct{ server *Server }

func (a natsAdmin) Ping() error {
	conn, err := natsclient.Connect("nats://"+a.server.address(), natsclient.UserInfo(natsStream(0), natsPassword), natsclient.NoReconnect(), natsclient.Timeout(time.Second))
	if err != nil {
		return err
	}
	defer conn.Close()
	js, err := jetstream.New(conn)
	if err != nil {
		return err
	}
	ctx, cancel := timeout()
	defer cancel()
	_, err = js.AccountInfo(ctx) // fails until JetStream has recovered
	return err
}

func (a natsAdmin) create(string, string) error { return nil }

func (a natsAdmin) Close() error { return nil }

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package testservers

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

const (
	// etcdEnv has a test binary be an etcd server with this directory; etcdAddressEnv is where it listens.
	etcdEnv, etcdAddressEnv = "BERTH_TEST_ETCD", "BERTH_TEST_ETCD_ADDRESS"
	// durableEnv has such a server sync what it acknowledges to the disk.
	durableEnv  = "BERTH_TEST_DURABLE"
	etcdRoot    = "root"
	etcdTimeout = 30 * time.Second
)

//nolint:gochecknoglobals // one server in a test binary
var etcd = newEtcd()

func newEtcd() *Server {
	return &Server{
		name:    "etcd",
		prepare: func(*Server) error { return nil },
		command: func(s *Server) *exec.Cmd {
			cmd := exec.Command("/proc/self/exe")
			cmd.Env = append(os.Environ(), etcdEnv+"="+filepath.Join(s.dir, "data"), etcdAddressEnv+"="+s.address(), durableEnv+"="+strconv.FormatBool(s.durable), "GOMEMLIMIT=512MiB")
			cmd.Env = append(cmd.Env, s.member.environment()...)
			return cmd
		},
		admin: func(s *Server) (admin, error) { return &etcdAdmin{server: s}, nil },
		dsn: func(s *Server, name, password string) string {
			return fmt.Sprintf("http://%s:%s@%s/berth/%s", name, password, s.address(), name)
		},
	}
}

// Etcd returns a running etcd server, with a prefix of its own in place of each database.
func Etcd(t testing.TB) *Server {
	t.Helper()
	return etcd.start(t)
}

// Serve is an etcd or NATS server until that fails, and returns true, if the process is to be one. TestMain calls it first, or the
// main function of a benchmark.
func Serve() bool {
	var err error
	durable := os.Getenv(durableEnv) == strconv.FormatBool(true)
	switch {
	case os.Getenv(etcdEnv) != "":
		err = serveEtcd(os.Getenv(etcdEnv), os.Getenv(etcdAddressEnv), durable)
	case os.Getenv(natsEnv) != "":
		err = serveNATS(os.Getenv(natsEnv), os.Getenv(natsAddressEnv), durable)
	default:
		return false
	}
	fmt.Fprintln(os.Stderr, err)
	return true
}

func serveEtcd(dir, address string, durable bool) error {
	c := embed.NewConfig()
	c.Dir, c.LogLevel, c.LogOutputs = dir, "warn", []string{"stderr"}
	at := []url.URL{{Scheme: "http", Host: address}}
	anyPort := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	c.ListenClientUrls, c.AdvertiseClientUrls = at, at
	c.ListenPeerUrls, c.AdvertisePeerUrls = anyPort, anyPort
	own, err := memberOfEnvironment()
	if err != nil {
		return err
	}
	if own == nil {
		c.InitialCluster = c.InitialClusterFromName(c.Name)
	} else {
		var all []string
		for i, at := range own.peerURLs("http") {
			all = append(all, memberName(i)+"="+at.String())
			if i == own.index {
				c.Name, c.ListenPeerUrls, c.AdvertisePeerUrls = memberName(i), []url.URL{*at}, []url.URL{*at}
			}
		}
		c.InitialCluster = strings.Join(all, ",")
	}
	c.QuotaBackendBytes, c.BcryptCost = 1<<30, 4
	if !durable {
		if own == nil {
			c.TickMs, c.ElectionMs = 10, 100 // a cluster on a busy machine would elect leaders all the time
		}
		c.UnsafeNoFsync = true // only the process is killed, not the machine
	}
	server, err := embed.StartEtcd(c)
	if err != nil {
		return err
	}
	return <-server.Err()
}

// etcdAdmin is the user root, who exists from when the first database is created.
type etcdAdmin struct {
	server *Server
	client *clientv3.Client
}

func (a *etcdAdmin) connect(password string) error {
	if err := a.Close(); err != nil {
		return err
	}
	config := clientv3.Config{Endpoints: []string{"http://" + a.server.address()}, DialTimeout: etcdTimeout, Logger: zap.NewNop()}
	if password != "" {
		config.Username, config.Password = etcdRoot, password
	}
	client, err := clientv3.New(config)
	a.client = client
	return err
}

func (a *etcdAdmin) do(call func(context.Context, *clientv3.Client) error) error {
	ctx, cancel := timeout()
	defer cancel()
	return call(ctx, a.client)
}

// timeout is that of an admin's calls.
func timeout() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), etcdTimeout)
}

func (a *etcdAdmin) Ping() error {
	if err := a.connect(""); err != nil {
		return err
	}
	return a.do(func(ctx context.Context, c *clientv3.Client) error {
		_, err := c.Get(ctx, "ping")
		if errors.Is(err, rpctypes.ErrUserEmpty) { // it wants a password
			return nil
		}
		return err
	})
}

func (a *etcdAdmin) create(name, password string) error {
	if err := a.connect(etcdRoot); err != nil {
		return err
	}
	return a.do(func(ctx context.Context, c *clientv3.Client) error {
		prefix := "/berth/" + name + "/"
		steps := []func() error{
			func() error { _, err := c.UserAdd(ctx, name, password); return err },
			func() error { _, err := c.RoleAdd(ctx, name); return err },
			func() error {
				_, err := c.RoleGrantPermission(ctx, name, prefix, clientv3.GetPrefixRangeEnd(prefix), clientv3.PermissionType(clientv3.PermReadWrite))
				return err
			},
			func() error { _, err := c.UserGrantRole(ctx, name, name); return err },
		}
		if status, err := c.AuthStatus(ctx); err != nil || !status.Enabled {
			steps = append([]func() error{
				func() error { _, err := c.UserAdd(ctx, etcdRoot, etcdRoot); return err },
				func() error { _, err := c.RoleAdd(ctx, etcdRoot); return err },
				func() error { _, err := c.UserGrantRole(ctx, etcdRoot, etcdRoot); return err },
			}, append(steps, func() error { _, err := c.AuthEnable(ctx); return err })...)
		}
		for _, step := range steps {
			if err := step(); err != nil {
				return err
			}
		}
		return nil
	})
}

func (a *etcdAdmin) Close() error {
	if a.client == nil {
		return nil
	}
	err := a.client.Close()
	a.client = nil
	if errors.Is(err, context.Canceled) { // its context has ended
		return nil
	}
	return err
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package testservers

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// members is how many servers a cluster has: it works while two of them do.
const members = 3

const (
	// memberEnv has a test binary be this member of a cluster, which has the members in clusterEnv.
	memberEnv, clusterEnv = "BERTH_TEST_MEMBER", "BERTH_TEST_CLUSTER"
)

// member is what a server knows of its cluster.
type member struct {
	index int
	peers []string // the addresses at which the members reach each other
}

func (m *member) environment() []string {
	if m == nil {
		return nil
	}
	return []string{memberEnv + "=" + strconv.Itoa(m.index), clusterEnv + "=" + strings.Join(m.peers, ",")}
}

// memberOfEnvironment is nil if this process is no member of a cluster.
func memberOfEnvironment() (*member, error) {
	peers := os.Getenv(clusterEnv)
	if peers == "" {
		return nil, nil
	}
	m := &member{peers: strings.Split(peers, ",")}
	var err error
	m.index, err = strconv.Atoi(os.Getenv(memberEnv))
	return m, err
}

func memberName(index int) string { return "member-" + strconv.Itoa(index) }

// peerURLs returns the URLs of the members.
func (m *member) peerURLs(scheme string) (all []*url.URL) {
	for _, peer := range m.peers {
		all = append(all, &url.URL{Scheme: scheme, Host: peer})
	}
	return all
}

// Cluster is several servers that replicate what one of them is told to all.
type Cluster struct {
	// Members are the servers, which may be killed and started again.
	Members []*Server
	// DSN is of a database in the cluster, by the addresses of all members.
	DSN string
}

// EtcdCluster returns a running cluster of etcd servers, which ends with the test.
func EtcdCluster(t testing.TB) *Cluster {
	t.Helper()
	return startCluster(t, newEtcd, "")
}

// NATSCluster returns a running cluster of NATS servers, which ends with the test. Each of them has the stream of the DSN.
func NATSCluster(t testing.TB) *Cluster {
	t.Helper()
	return startCluster(t, newNATS, fmt.Sprint("?replicas=", members))
}

func startCluster(t testing.TB, newServer func() *Server, parameters string) *Cluster {
	t.Helper()
	c := &Cluster{}
	var peers, hosts []string
	for i := range members {
		s := newServer()
		t.Cleanup(s.Stop)
		if err := s.reserve(); err != nil {
			t.Fatal(err)
		}
		port, err := FreePort()
		if err != nil {
			t.Fatal(err)
		}
		s.member = &member{index: i}
		c.Members, hosts = append(c.Members, s), append(hosts, s.address())
		peers = append(peers, net.JoinHostPort("127.0.0.1", strconv.Itoa(port)))
	}
	for _, s := range c.Members {
		s.member.peers = peers
	}
	errs := make([]error, members)
	var starting sync.WaitGroup
	for i, s := range c.Members { // at once: each accepts connections when most of them run
		starting.Go(func() { errs[i] = s.Start() })
	}
	starting.Wait()
	for i, err := range errs {
		if err != nil {
			t.Fatalf("start member %d of %s: %v", i, c.Members[i].name, err)
		}
	}
	first := c.Members[0]
	c.DSN = strings.Replace(first.Database(t), first.address(), strings.Join(hosts, ","), 1) + parameters
	return c
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package testservers

import "fmt"

// Run starts a server for a benchmark, and waits until it accepts connections. kind is the type of a store in it, such as PostgreSQL;
// for MySQL, it is MariaDB. Unlike a server of tests, it syncs what it acknowledges to the disk (but for S3), has the
// memory that it has by default, and serves only the caller.
//
// If its programs are missing, the error wraps [exec.ErrNotFound], and names the package that has them. [Server.Stop] ends the server.
func Run(kind string) (*Server, error) {
	start, known := map[string]func() *Server{
		"PostgreSQL": newPostgreSQL, "MySQL": newMariaDB, "Etcd": newEtcd, "NATS": newNATS, "S3": newS3,
	}[kind]
	if !known {
		return nil, fmt.Errorf("no server has stores of the type %q", kind)
	}
	s := start()
	s.durable = true
	if err := s.begin(); err != nil {
		s.Stop()
		return nil, fmt.Errorf("start %s: %w", s.name, err)
	}
	return s, nil
}

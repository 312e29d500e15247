// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testservers runs real database servers for tests and benchmarks: PostgreSQL and MariaDB, from the packages postgresql and
// mariadb-server of Debian, etcd and NATS, which the binary itself is when [Serve] is called first, and an object storage, which is
// built in the module hack/s3. Each runs once in a test binary, with a database and a role for each test. A test is skipped if a
// server's programs are missing. [Run] starts one for a benchmark.
//
// No other code uses it. It leaves nothing behind: a server ends with the binary, and [Stop] removes its files.
package testservers

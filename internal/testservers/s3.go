// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package testservers

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

const (
	s3Access, s3Secret = "berthaccess", "berthsecret"
	// s3Module is the module of the server, below that of the tests.
	s3Module = "hack/s3"
)

//nolint:gochecknoglobals // one server in a test binary
var s3 = newS3()

func newS3() *Server {
	program := "versitygw" // which is missing until prepare has built it
	return &Server{
		name: "S3",
		prepare: func(s *Server) (err error) {
			if program, err = buildS3(); err != nil {
				return err
			}
			return os.Mkdir(filepath.Join(s.dir, "data"), 0o700)
		},
		command: func(s *Server) *exec.Cmd {
			cmd := exec.Command(program, "--quiet", "--port", s.address(), "posix", filepath.Join(s.dir, "data"))
			cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY="+s3Access, "ROOT_SECRET_KEY="+s3Secret, "GOMEMLIMIT=256MiB")
			return cmd
		},
		admin: func(s *Server) (admin, error) {
			client, err := minio.New(s.address(), &minio.Options{Creds: credentials.NewStaticV4(s3Access, s3Secret, ""), Region: "us-east-1", MaxRetries: 1})
			return s3Admin{client}, err
		},
		dsn: func(s *Server, name, _ string) string {
			return fmt.Sprintf("http://%s:%s@%s/%s/spaces/demo", s3Access, s3Secret, s.address(), name)
		},
	}
}

// buildS3 builds the server, or finds what was built before, and returns its path.
func buildS3() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for _, err := os.Stat(filepath.Join(dir, s3Module)); err != nil; _, err = os.Stat(filepath.Join(dir, s3Module)) {
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("the module %s is not in this directory, nor in one above", s3Module)
		}
		dir = filepath.Dir(dir)
	}
	cmd := exec.Command("go", "tool", "-n", "versitygw")
	cmd.Dir = filepath.Join(dir, s3Module)
	cmd.Env = append(os.Environ(), "GOFLAGS=-buildvcs=false")
	var failed strings.Builder
	cmd.Stderr = &failed
	path, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("build the S3 server: %w: %s", err, failed.String())
	}
	return strings.TrimSpace(string(path)), nil
}

// S3 returns a running object storage. Each database is a prefix in a bucket of its own.
func S3(t testing.TB) *Server {
	t.Helper()
	return s3.start(t)
}

// s3Admin is a client with all rights.
type s3Admin struct{ client *minio.Client }

func (a s3Admin) Ping() error {
	ctx, cancel := timeout()
	defer cancel()
	_, err := a.client.ListBuckets(ctx)
	return err
}

func (a s3Admin) create(name, _ string) error {
	ctx, cancel := timeout()
	defer cancel()
	return a.client.MakeBucket(ctx, name, minio.MakeBucketOptions{})
}

func (a s3Admin) Close() error { return nil }

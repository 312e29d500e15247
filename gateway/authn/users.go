// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package authn

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/gateway/resolve"
	"github.com/berth-dev/berth/identity"
	"github.com/berth-dev/berth/internal/refile"
)

// maxFile limits a file, in bytes: it has space for some 100,000 users.
const maxFile = 16 << 20

// users are the lines of a file. A nil *users has none. It is safe for concurrent use.
type users struct {
	file   refile.File
	logger klog.Logger
	lines  atomic.Pointer[map[line]*identity.Identity]
}

// line is what a client must know: a token, or a password and whose it is. Only the sum is kept, and how long it takes to find one tells
// nothing of others.
type line struct {
	user string // empty for tokens
	sum  [sha256.Size]byte
}

// openUsers reads a file; no file if path is empty.
func openUsers(path string, proof identity.Proof, logger klog.Logger) (*users, error) {
	if path == "" {
		return nil, nil
	}
	u := &users{logger: logger}
	u.file = refile.File{Path: path, MaxBytes: maxFile, Remedy: "move users to an OpenID Connect provider", Parse: func(data []byte) error {
		lines, err := parseUsers(data, proof)
		if err == nil {
			u.lines.Store(&lines)
		}
		return err
	}}
	_, err := u.file.Read()
	return u, err
}

// run reads the file again when it changes, until ctx ends.
func (u *users) run(ctx context.Context) {
	if u != nil {
		u.file.Follow(ctx, func() {}, func(err error) {
			u.logger.Error(err, "Could not read a file with credentials again; what was read before holds", "file", u.file.Path)
		})
	}
}

// find returns who has a credential; nil if nobody has. user is empty for tokens.
func (u *users) find(user, credential string) *identity.Identity {
	if u == nil {
		return nil
	}
	return (*u.lines.Load())[line{user, sha256.Sum256([]byte(credential))}]
}

// parseUsers parses the lines of a file: CREDENTIAL,USER,UID,"GROUP,...",OTHER...,,TENANT. Lines without an empty field before the last one are of
// the format that Kubernetes has, and of users of the tenant system.
func parseUsers(data []byte, proof identity.Proof) (map[line]*identity.Identity, error) {
	reader := csv.NewReader(bytes.NewReader(data))
	reader.FieldsPerRecord = -1
	lines := map[line]*identity.Identity{}
	for {
		fields, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return lines, nil
		}
		if err != nil {
			return nil, err // with the line, and without its fields
		}
		number, _ := reader.FieldPos(0)
		who, err := parseUser(fields)
		if err != nil {
			return nil, fmt.Errorf("line %d %w", number, err)
		}
		who.Proof = proof
		key := line{sum: sha256.Sum256([]byte(fields[0]))}
		if proof == identity.PasswordFile {
			key.user = who.Name
		}
		if lines[key] != nil {
			return nil, fmt.Errorf("line %d has the credential of a line before it; give each user another one", number)
		}
		lines[key] = who
	}
}

func parseUser(fields []string) (*identity.Identity, error) {
	const format = `write CREDENTIAL,USER,UID,"GROUP,...",,TENANT`
	if len(fields) < 3 {
		return nil, fmt.Errorf("has %d fields, and must have 3 at least; %s", len(fields), format)
	}
	for i, name := range []string{"credential", "user", "UID"} {
		if fields[i] == "" {
			return nil, fmt.Errorf("has no %s; %s", name, format)
		}
	}
	who := &identity.Identity{Name: fields[1], UID: fields[2], Tenant: resolve.System}
	rest := fields[3:]
	if last := len(rest) - 1; last >= 1 && rest[last-1] == "" {
		who.Tenant = rest[last]
		if problems := validation.IsDNS1123Label(who.Tenant); len(problems) > 0 {
			return nil, fmt.Errorf("has the tenant %.100q behind ,,: %s; %s", who.Tenant, problems[0], format)
		}
		rest = rest[:last-1]
	}
	if len(rest) > 0 && rest[0] != "" {
		who.Groups = strings.Split(rest[0], ",")
	}
	return who, nil
}

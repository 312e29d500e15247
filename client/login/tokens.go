// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/oauth2"
	"golang.org/x/sys/unix"

	"github.com/berth-dev/berth/internal/fsutil"
)

const (
	// margin is how long before its end a token is refreshed.
	margin = 10 * time.Second
	// lockPoll is how often a lock is tried that another process holds.
	lockPoll = 50 * time.Millisecond
)

// Tokens are what a provider has issued to a user.
type Tokens struct {
	IDToken      string    `json:"idToken"`
	RefreshToken string    `json:"refreshToken,omitempty"`
	Subject      string    `json:"subject"`
	Expires      time.Time `json:"expires"`
}

func (t *Tokens) good() bool { return t != nil && time.Now().Add(margin).Before(t.Expires) }

// ErrLoggedOut means that there are no tokens, or none that could be refreshed.
var ErrLoggedOut = errors.New("you are not logged in, or your login has expired")

// Token returns a token that is good now. It gets another one from the provider if necessary. Of several processes that call it at once,
// one does. The error wraps [ErrLoggedOut] if the user must log in again.
func (c *Client) Token(ctx context.Context) (*Tokens, error) {
	if t, err := c.read(); err != nil || t.good() {
		return t, err
	}
	unlock, err := c.lock(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	before, err := c.read() // another process may have refreshed them
	switch {
	case err != nil || before.good():
		return before, err
	case before == nil || before.RefreshToken == "":
		return nil, ErrLoggedOut
	}
	s, err := c.open(ctx)
	if err != nil {
		return nil, err
	}
	issued, err := s.TokenSource(s.ctx, &oauth2.Token{RefreshToken: before.RefreshToken}).Token()
	if response, ok := errors.AsType[*oauth2.RetrieveError](err); ok && response.ErrorCode == "invalid_grant" {
		return nil, errors.Join(ErrLoggedOut, denied("refresh the token", err))
	}
	if err != nil {
		return nil, denied("refresh the token", err)
	}
	t, err := s.tokens(issued, "")
	switch {
	case err != nil:
		return nil, fmt.Errorf("refresh the token: %w", err)
	case t.Subject != before.Subject:
		return nil, errors.Join(ErrLoggedOut, errors.New("refresh the token: it is of another user"))
	}
	return t, c.write(t)
}

// Logout deletes the tokens, and reports whether there were some. They stay good until they expire.
func (c *Client) Logout(ctx context.Context) (bool, error) {
	if _, err := os.Stat(c.path()); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	unlock, err := c.lock(ctx)
	if err != nil {
		return false, err
	}
	defer unlock()
	return true, os.Remove(c.path())
}

// path is that of the file with the tokens of the provider's client.
func (c *Client) path() string {
	sum := sha256.Sum256([]byte(c.Issuer + "\x00" + c.ID))
	return filepath.Join(c.Dir, hex.EncodeToString(sum[:16])+".json")
}

// read returns the tokens; nil if there are none.
func (c *Client) read() (*Tokens, error) {
	data, err := os.ReadFile(c.path())
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	t := &Tokens{}
	if json.Unmarshal(data, t) != nil {
		return nil, nil // as after a log-out
	}
	return t, nil
}

func (c *Client) write(t *Tokens) error {
	return fsutil.Replace(c.path(), func(w io.Writer) error { return json.NewEncoder(w).Encode(t) })
}

// replace writes the tokens of a login.
func (c *Client) replace(t *Tokens) error {
	unlock, err := c.lock(context.Background())
	if err != nil {
		return err
	}
	defer unlock()
	return c.write(t)
}

// lock keeps other processes from the file until unlock is called. The directory is created if it doesn't exist.
func (c *Client) lock(ctx context.Context) (unlock func(), err error) {
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, err
	}
	file, err := os.OpenFile(c.path()+".lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	for {
		err := unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = file.Close() }, nil // which unlocks it
		}
		if !errors.Is(err, unix.EWOULDBLOCK) && !errors.Is(err, unix.EINTR) {
			_ = file.Close()
			return nil, fmt.Errorf("lock %s: %w", file.Name(), err)
		}
		select {
		case <-ctx.Done():
			_ = file.Close()
			return nil, fmt.Errorf("wait for another process that refreshes the token: %w", ctx.Err())
		case <-time.After(lockPoll):
		}
	}
}

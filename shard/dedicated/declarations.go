// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dedicated

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"

	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/syncer/declaration"
)

const (
	// DeclarationsPath is the path of the commands about what is synced of a space by ResourceSyncs: PUT replaces it by what
	// [declaration.Encode] encodes, GET returns a [Declared].
	DeclarationsPath = "/declarations"
	// WithdrawalsPath is the path of the questions of a process that are [Withdrawal]. Answers are [Withdrawn].
	WithdrawalsPath = "/withdrawals"
)

// Declared says what a process was told to sync of its space.
type Declared struct {
	// Digest is [DeclarationsDigest] of that.
	Digest string `json:"digest"`
}

// DeclarationsDigest returns the digest of encoded declarations.
func DeclarationsDigest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// Declare tells the process what is synced of its space, unless the process knows it already. The process takes it up soon after, once it
// knows the host's objects. It may be called again at any time.
func (p *Process) Declare(ctx context.Context, all []*declaration.Declaration) error {
	data, err := declaration.Encode(all)
	if err != nil {
		return err
	}
	asking, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	var has Declared
	if err := p.client.Do(asking, http.MethodGet, DeclarationsPath, &has); err != nil {
		return fmt.Errorf("ask what is synced of space %s: %w", p.space, err)
	}
	if has.Digest == DeclarationsDigest(data) {
		return nil
	}
	sending, cancelSending := context.WithTimeout(ctx, callTimeout)
	defer cancelSending()
	req, err := control.NewRequest(sending, http.MethodPut, DeclarationsPath, bytes.NewReader(data))
	if err != nil {
		return err
	}
	return p.send(req, "send what is synced of space "+p.space)
}

// Withdrawal is the wish of a process that is about to let a Service lead out of its space: the platform is to delete the space's objects on
// the host that name Services, of all syncs but those with which the space runs.
type Withdrawal struct {
	// ID is that of the answer; 0 if nothing is to be deleted.
	ID uint64 `json:"id,omitempty"`
	// Runs are the names of the ResourceSyncs with which the space runs.
	Runs []string `json:"runs,omitempty"`
}

// Withdrawn is the answer to a [Withdrawal].
type Withdrawn struct {
	ID uint64 `json:"id"`
	// Failed is why objects may be left; empty if none are.
	Failed string `json:"failed,omitempty"`
}

// FollowWithdrawals answers the withdrawals of a process until ctx ends. withdraw may take long.
func (p *Process) FollowWithdrawals(ctx context.Context, withdraw func(context.Context, Withdrawal) error) {
	follow(ctx, p, WithdrawalsPath, func(ctx context.Context, wanted Withdrawal) (Withdrawn, bool) {
		if wanted.ID == 0 {
			return Withdrawn{}, false
		}
		done := Withdrawn{ID: wanted.ID}
		if err := withdraw(ctx, wanted); err != nil {
			done.Failed = err.Error()
		}
		return done, true
	})
}

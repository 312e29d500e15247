// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dedicated

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/syncer/declaration"
)

const (
	// DeclarationsPath is the path of the commands about what ResourceSyncs sync of a space: PUT sends a [declaration.Update], GET returns a
	// [Declared].
	DeclarationsPath = "/declarations"
	// WithdrawalsPath is the path of the questions of a process that are [Withdrawal]. Answers are [Withdrawn].
	WithdrawalsPath = "/withdrawals"
)

// withdrawalPause is the pause between two withdrawals. A process asks for one at most each time it starts its space.
const withdrawalPause = time.Second

// Declared says which update a process has.
type Declared struct {
	// Digest is that of the last update that was sent to this process; empty if none was.
	Digest string `json:"digest"`
}

// Declare sends the process what is synced of its space, unless that was sent last. The process applies it soon after, once it knows the
// host's objects. It may be called again at any time.
func (p *Process) Declare(ctx context.Context, update *declaration.Update) error {
	asking, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	var has Declared
	if err := p.client.Do(asking, http.MethodGet, DeclarationsPath, &has); err != nil {
		return fmt.Errorf("ask what is synced of space %s: %w", p.space, err)
	}
	if has.Digest == update.Digest() {
		return nil
	}
	data, err := update.Encode()
	if err != nil {
		return err
	}
	sending, cancelSending := context.WithTimeout(ctx, callTimeout)
	defer cancelSending()
	req, err := control.NewRequest(sending, http.MethodPut, DeclarationsPath, bytes.NewReader(data))
	if err != nil {
		return err
	}
	return p.send(req, "send what is synced of space "+p.space)
}

// Withdrawal asks the platform, before a Service leads out of a space, to delete the space's objects on the host that name Services, except
// those of the ResourceSyncs with which the space runs.
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
	follow(ctx, p, WithdrawalsPath, withdrawalPause, func(ctx context.Context, wanted Withdrawal) (Withdrawn, bool) {
		if wanted.ID == 0 {
			return Withdrawn{}, false
		}
		done := Withdrawn{ID: wanted.ID}
		if err := withdraw(ctx, wanted); err != nil {
			p.logger.Error(err, "Could not delete objects of a dedicated space on the host before a Service leads out of it; its process retries")
			// The process may be in the hands of its tenant, and the error names what isn't the tenant's.
			done.Failed = "the platform could not delete what earlier ResourceSyncs of the space left on the host; its log says why"
		}
		return done, true
	})
}

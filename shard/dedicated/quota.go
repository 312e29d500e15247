// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dedicated

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/quota"
)

// QuotaPath is the path of the commands about the share of a quota: GET waits until the process wants a larger one, for [QuotaWait] at
// most, and returns a [quota.Wanted]; PUT answers it with a [quota.Answer].
const QuotaPath = "/quota"

const (
	// QuotaWait is how long a process waits until it answers that it wants nothing.
	QuotaWait = 20 * time.Second
	// quotaPause is the pause between two questions of a process, and after a failed request.
	quotaPause, quotaRetry = 200 * time.Millisecond, 2 * time.Second
)

// FollowQuota answers the process when it asks for a larger share of its tenant's quota, until ctx ends. answer may take long.
func (p *Process) FollowQuota(ctx context.Context, answer func(context.Context, quota.Wanted) quota.Answer) {
	for ctx.Err() == nil {
		wanted, err := p.wantedQuota(ctx)
		pause := quotaPause
		switch {
		case err != nil:
			pause = quotaRetry // it doesn't run, or doesn't answer
		case wanted.ID != 0:
			err = p.AnswerQuota(ctx, answer(ctx, wanted))
		}
		if err != nil {
			p.logger.V(1).Info("Could not answer what a dedicated space's process asks of its quota; Berth retries", "reason", err.Error())
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

func (p *Process) wantedQuota(ctx context.Context) (quota.Wanted, error) {
	ctx, cancel := context.WithTimeout(ctx, QuotaWait+answerTime)
	defer cancel()
	var wanted quota.Wanted
	if err := p.client.Do(ctx, http.MethodGet, QuotaPath, &wanted); err != nil {
		return quota.Wanted{}, fmt.Errorf("ask what space %s wants of its quota: %w", p.space, err)
	}
	return wanted, nil
}

// AnswerQuota sends an answer to the process.
func (p *Process) AnswerQuota(ctx context.Context, answer quota.Answer) error {
	data, err := json.Marshal(answer)
	if err != nil {
		return fmt.Errorf("encode an answer about a quota: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	req, err := control.NewRequest(ctx, http.MethodPut, QuotaPath, bytes.NewReader(data))
	if err != nil {
		return err
	}
	return p.send(req, "answer what space "+p.space+" asked of its quota")
}

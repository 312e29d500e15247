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
)

// A process asks the platform, which connects to the process and not the other way round: GET of a path waits until the process has a
// question, for [QuestionWait] at most, and PUT answers it.

const (
	// QuestionWait is how long a process waits until it answers that it asks nothing.
	QuestionWait = 20 * time.Second
	// questionRetry is the pause after a failed request.
	questionRetry = 2 * time.Second
)

// follow answers the questions of a process until ctx ends, with a pause between two of them. answer returns the answer and true, or false if
// the process asks nothing. It may take long.
func follow[Question, Answer any](ctx context.Context, p *Process, path string, between time.Duration, answer func(context.Context, Question) (Answer, bool)) {
	for ctx.Err() == nil {
		asked, err := nextQuestion[Question](ctx, p, path)
		pause := between
		if err != nil {
			pause = questionRetry // it doesn't run, or doesn't answer
		} else if said, ok := answer(ctx, asked); ok {
			err = p.answer(ctx, path, said)
		}
		if err != nil {
			p.logger.V(1).Info("Could not answer what a dedicated space's process asks; Berth retries", "path", path, "reason", err.Error())
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
		}
	}
}

func nextQuestion[Question any](ctx context.Context, p *Process, path string) (asked Question, err error) {
	ctx, cancel := context.WithTimeout(ctx, QuestionWait+answerTime)
	defer cancel()
	if err := p.client.Do(ctx, http.MethodGet, path, &asked); err != nil {
		return asked, fmt.Errorf("ask space %s for its questions at %s: %w", p.space, path, err)
	}
	return asked, nil
}

// answer sends an answer to the process.
func (p *Process) answer(ctx context.Context, path string, answer any) error {
	data, err := json.Marshal(answer)
	if err != nil {
		return fmt.Errorf("encode an answer to a dedicated space: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	req, err := control.NewRequest(ctx, http.MethodPut, path, bytes.NewReader(data))
	if err != nil {
		return err
	}
	return p.send(req, "answer what space "+p.space+" asked at "+path)
}

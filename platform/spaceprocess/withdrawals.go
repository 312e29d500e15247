// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package spaceprocess

import (
	"context"
	"errors"
	"net/http"

	"github.com/berth-dev/berth/shard/dedicated"
)

// withdrawals ask the platform to delete objects on the host of ResourceSyncs that the space doesn't run with. The zero value is ready to use.
type withdrawals struct {
	questions questions[dedicated.Withdrawal, dedicated.Withdrawn]
}

// withdraw implements the function of [shard.Config].
func (w *withdrawals) withdraw(ctx context.Context, _ string, runs []string) error {
	done, err := w.questions.ask(ctx, func(id uint64) dedicated.Withdrawal { return dedicated.Withdrawal{ID: id, Runs: runs} })
	if err == nil && done.Failed != "" {
		err = errors.New(done.Failed)
	}
	return err
}

// serve adds the routes for withdrawals.
func (w *withdrawals) serve(mux *http.ServeMux) {
	w.questions.serve(mux, dedicated.WithdrawalsPath, func(done dedicated.Withdrawn) { w.questions.answer(done.ID, done) })
}

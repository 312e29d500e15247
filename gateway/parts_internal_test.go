// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"errors"
	"net/http/httptest"
	"testing"
)

// L3: a client that leaves at the moment at which a part of its answer has its turn does not keep the turn: its space, and in
// the end all spaces, would run out of them.
func TestHostileClientsThatLeaveKeepNoTurn(t *testing.T) {
	turns := newTurns(64, 32)
	ctx, leave := context.WithCancel(t.Context())
	leave()
	w := &partsWriter{ResponseWriter: httptest.NewRecorder(), ctx: ctx, turn: func(ctx context.Context) (func(), error) {
		return turns.take(ctx, flow{tenant: "a"}, partCost)
	}}
	w.over.Store(true)
	for range 100 { // by chance, the turn comes first
		if _, err := w.Write([]byte("part")); !errors.Is(err, context.Canceled) {
			t.Fatalf("without a client a part is written: %v", err)
		}
	}
	turns.mu.Lock()
	defer turns.mu.Unlock()
	if turns.used > 0 || len(turns.waiting) > 0 || len(turns.lines) > 0 {
		t.Errorf("left over: %+v", turns)
	}
}

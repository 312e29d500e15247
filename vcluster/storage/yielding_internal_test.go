// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"testing"
	"time"

	"k8s.io/apiserver/pkg/storage/value"
	"k8s.io/apiserver/pkg/storage/value/encrypt/identity"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/kine/hub"
)

// L1, L3: each object that a watch decodes is charged, whether the watch sends it or not. What other requests decode is in their turns.
func TestHostileWhatWatchesDecodeIsCharged(t *testing.T) {
	var charged time.Duration
	work := &bounds.Work{}
	yields := 0
	work.ByTurns(bounds.Turns{Charge: func(d time.Duration) { charged += d }, Yield: func() { yields++ }})
	y := &yielding{Transformer: identity.NewEncryptCheckTransformer()}
	ctx := bounds.WithWork(t.Context(), work)
	data := make([]byte, 1<<20)
	decode := func(watch bool) {
		t.Helper()
		decoding := ctx
		if watch {
			decoding = hub.WithFlow(ctx, hub.NewFlow(bounds.NewAccount(nil), func() {}))
		}
		if _, _, err := y.TransformFromStorage(decoding, data, value.DefaultContext("key")); err != nil {
			t.Fatal(err)
		}
	}
	if decode(false); charged != 0 || yields != 1 {
		t.Errorf("%s is charged to a request that is no watch, and it yields %d times", charged, yields)
	}
	if decode(true); charged != decodeObject+(1<<20)*decodeByte {
		t.Errorf("%s is charged to a watch", charged)
	}
	if yields != 1 {
		t.Error("a watch, which has no turn, takes that of its request")
	}
}

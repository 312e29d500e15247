// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"time"

	"k8s.io/apiserver/pkg/storage/value"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/internal/yield"
	"github.com/berth-dev/berth/kine/hub"
)

// yielding lets other goroutines run while many objects are decoded: a request of another space would wait for 10 ms behind
// each list of this one, at each of its steps. In a busy process, a list also rests, see [bounds.Work.Yield].
type yielding struct {
	value.Transformer
	point yield.Point
}

const (
	// It takes decodeObject and decodeByte for each byte to decode an object for a watch and to compare it with its selectors.
	decodeObject = 10 * time.Microsecond
	decodeByte   = 5 * time.Nanosecond
)

// TransformFromStorage implements [value.Transformer]. Each watch decodes each object, also those that it does not send, when the turn of
// its request is over.
func (y *yielding) TransformFromStorage(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, bool, error) {
	work, watch := bounds.WorkOf(ctx), hub.FlowOf(ctx) != nil
	if watch {
		work.Charge(decodeObject + time.Duration(len(data))*decodeByte)
	}
	if watch || !work.Yield() {
		y.point.Pass(nil)
	}
	return y.Transformer.TransformFromStorage(ctx, data, dataCtx)
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"

	"k8s.io/apiserver/pkg/storage/value"

	"github.com/berth-dev/berth/internal/yield"
)

// yielding lets other goroutines run while many objects are decoded: a request of another space would wait for 10 ms behind
// each list of this one, at each of its steps.
type yielding struct {
	value.Transformer
	point yield.Point
}

// TransformFromStorage implements [value.Transformer].
func (y *yielding) TransformFromStorage(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, bool, error) {
	y.point.Pass()
	return y.Transformer.TransformFromStorage(ctx, data, dataCtx)
}

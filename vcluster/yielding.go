// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"
	"runtime"

	"k8s.io/apiserver/pkg/storage/value"
)

// yielding lets other goroutines run before each object that is decoded. Go itself takes a processor from a goroutine only
// after 10 ms, so that a request of another space would wait as long behind each list of this one.
type yielding struct{ value.Transformer }

// TransformFromStorage implements [value.Transformer].
func (y yielding) TransformFromStorage(ctx context.Context, data []byte, dataCtx value.Context) ([]byte, bool, error) {
	runtime.Gosched()
	return y.Transformer.TransformFromStorage(ctx, data, dataCtx)
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package requests

import (
	"context"
	"fmt"
	"runtime"
	"sync"

	"golang.org/x/sync/semaphore"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/refusal"
)

// NewValidations returns what bounds how many objects of a space are validated at once, by schemas and admission policies: half
// as many as there are processors. A value that is matched with the pattern of a tenant's CustomResourceDefinition, or an
// expression in one or in a policy, may take seconds, and nothing can interrupt that, not even the end of the request.
func NewValidations() *semaphore.Weighted {
	return semaphore.NewWeighted(int64(max(1, runtime.GOMAXPROCS(0)/2)))
}

// validation is the one of a write: between mutating and validating admission, where upstream waits for nobody and nothing.
type validation struct {
	mu    sync.Mutex
	slots *semaphore.Weighted // that it has one of, if it does
	ends  bool                // with the work, too
}

type validationKey struct{}

// WithValidation returns the context of a write whose object will be validated.
func WithValidation(ctx context.Context) context.Context {
	return context.WithValue(ctx, validationKey{}, &validation{})
}

// BeginValidation waits until the object of a client's write may be validated. That ends with EndValidation, or with the work
// of the request.
func BeginValidation(ctx context.Context, slots *semaphore.Weighted, a admission.Attributes) error {
	v, ok := ctx.Value(validationKey{}).(*validation)
	if !ok || slots == nil || a.GetOperation() != admission.Create && a.GetOperation() != admission.Update {
		return nil
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.slots != nil { // the store had another version than was expected
		return nil
	}
	if err := AcquireValidation(ctx, slots); err != nil {
		return err
	}
	v.slots = slots
	if work := bounds.WorkOf(ctx); !v.ends && work != nil {
		v.ends = true
		work.AtEnd(v.end)
	}
	return nil
}

// AcquireValidation waits for one of the slots, as long as ctx lasts. The error of one that came too late tells a client to try again.
func AcquireValidation(ctx context.Context, slots *semaphore.Weighted) error {
	if err := slots.Acquire(ctx, 1); err != nil {
		return apierrors.NewTooManyRequests(fmt.Sprintf(
			"the space validates %d objects at once, and those before this one take too long: use shorter values, or patterns and policies that are evaluated faster", max(1, runtime.GOMAXPROCS(0)/2)), refusal.RetrySeconds)
	}
	return nil
}

// EndValidation gives back the slot of a write, if it has one.
func EndValidation(ctx context.Context) {
	if v, ok := ctx.Value(validationKey{}).(*validation); ok {
		v.end()
	}
}

func (v *validation) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.slots != nil {
		v.slots.Release(1)
		v.slots = nil
	}
}

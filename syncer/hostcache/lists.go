// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"
)

// deniedTimeout is how long the host may reject a shared watch before that is an error, because a new role takes effect
// in its authorizer only after some time.
const deniedTimeout = 10 * time.Second

var errNotSynced = errors.New("the host's API did not answer in time")

// deniedPause is the interval at which the error of a watch is checked after deniedTimeout.
const deniedPause = time.Second

// lastError is the error of the last list or watch; nil if it succeeded.
type lastError struct {
	mu  sync.Mutex
	err error
}

func (l *lastError) set(verb string, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err = err; err != nil {
		l.err = fmt.Errorf("%s: %w", verb, err)
	}
}

func (l *lastError) get() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// noted returns a lister that records its errors, which a reflector does not return.
func (l *lastError) noted(from *cache.ListWatch) cache.ListerWatcher {
	return &cache.ListWatch{
		DisableChunking: from.DisableChunking,
		ListWithContextFunc: func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
			out, err := from.ListWithContext(ctx, o)
			l.set("list", err)
			return out, err
		},
		WatchFuncWithContext: func(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
			out, err := from.WatchWithContext(ctx, o)
			l.set("watch", err)
			return out, err
		},
	}
}

// AwaitFilled waits until a shared watch has synced. It fails when the host keeps rejecting it, or when ctx ends.
func (r *Router) AwaitFilled(ctx context.Context, name string) error {
	denied := time.NewTimer(deniedTimeout)
	defer denied.Stop()
	for {
		select {
		case <-r.filled:
			return nil
		case <-ctx.Done():
			return fmt.Errorf("list %s of the host: %w", name, errors.Join(ctx.Err(), errNotSynced, r.failed.get()))
		case <-denied.C:
			if err := r.failed.get(); apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
				return fmt.Errorf("read %s of the host, which Berth watches: %w; grant its account list and watch", name, err)
			}
			denied.Reset(deniedPause)
		}
	}
}

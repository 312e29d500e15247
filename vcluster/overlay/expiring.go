// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"context"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/berth-dev/berth/internal/safego"
)

// errExpired is what clients get whose watch or list began before another definition may have come into force. It makes them list again.
func errExpired() *apierrors.StatusError {
	return apierrors.NewResourceExpired("another CustomResourceDefinition may have come into force; list again")
}

// expiring is a watch that can be ended with the event that makes its client list again.
type expiring struct {
	ctx     context.Context
	cancel  context.CancelFunc
	expired atomic.Bool
	result  chan watch.Event
}

func newExpiring(ctx context.Context) *expiring {
	w := &expiring{result: make(chan watch.Event)}
	w.ctx, w.cancel = context.WithCancel(ctx)
	return w
}

// expire ends the watch. It doesn't wait.
func (w *expiring) expire() {
	w.expired.Store(true)
	w.cancel()
}

// run hands on inner until the watch ends. request is the context of its client.
func (w *expiring) run(request context.Context, inner watch.Interface, done func()) {
	go safego.Run("hand on a watch", func() {
		defer done()
		defer close(w.result)
		defer w.cancel()
		defer inner.Stop()
		w.handOn(inner)
		if w.expired.Load() {
			status := errExpired().Status()
			select {
			case w.result <- watch.Event{Type: watch.Error, Object: &status}:
			case <-request.Done():
			}
		}
	}, func(error) { w.cancel() })
}

func (w *expiring) handOn(inner watch.Interface) {
	for {
		select {
		case event, ok := <-inner.ResultChan():
			if !ok {
				return
			}
			select {
			case w.result <- event:
			case <-w.ctx.Done():
				return
			}
		case <-w.ctx.Done():
			return
		}
	}
}

// ResultChan implements [watch.Interface].
func (w *expiring) ResultChan() <-chan watch.Event { return w.result }

// Stop implements [watch.Interface].
func (w *expiring) Stop() { w.cancel() }

var _ watch.Interface = &expiring{}

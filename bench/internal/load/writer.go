// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// Writer creates ConfigMaps in a space until it is stopped, and repeats each write until it is acknowledged. Its methods are safe for
// concurrent use; Stop may be called more than once.
type Writer struct {
	target  Target
	options Options
	prefix  string // of the names of the objects
	cancel  context.CancelFunc
	group   sync.WaitGroup

	mu     sync.Mutex
	writes []write // in the order of their acknowledgments
	failed int
}

// write is an acknowledged write.
type write struct {
	name         string
	began, ended time.Time // of the attempt that was acknowledged
}

// StartWriter has clients write until Stop is called or ctx ends. Each creates one object after the other in the namespace default, with
// a pause after each attempt, whether it fails or not. Options.Held has no effect.
func StartWriter(ctx context.Context, target Target, o Options) (*Writer, error) {
	w := &Writer{target: target, options: o, prefix: fmt.Sprintf("written-%d-", time.Now().UnixNano())}
	ctx, w.cancel = context.WithCancel(ctx)
	for i := range o.Clients {
		c, err := newClient(target, o.Timeout, "")
		if err != nil {
			w.Stop()
			return nil, err
		}
		w.group.Go(func() {
			defer c.disconnect()
			for n := 0; ctx.Err() == nil; n++ {
				w.repeat(ctx, c, fmt.Sprint(w.prefix, i, "-", n))
			}
		})
	}
	return w, nil
}

// repeat creates an object, as often as it takes until that is acknowledged or ctx ends.
func (w *Writer) repeat(ctx context.Context, c *client, name string) {
	object := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: metav1.NamespaceDefault}}
	for ctx.Err() == nil {
		began := time.Now()
		err := c.to(c.api.Post()).Body(object).Do(ctx).Error()
		// If the object exists, the answer to an earlier attempt was lost. This one tells the client as well that it is written.
		acknowledged := err == nil || apierrors.IsAlreadyExists(err)
		if !acknowledged && ctx.Err() != nil {
			return // the end has interrupted it
		}
		w.note(write{name, began, time.Now()}, acknowledged)
		pause(ctx, w.options.Pause)
		if acknowledged {
			return
		}
	}
}

func (w *Writer) note(done write, acknowledged bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !acknowledged {
		w.failed++
		return
	}
	w.writes = append(w.writes, done)
}

// Counts returns how many writes were acknowledged so far, and how many attempts failed.
func (w *Writer) Counts() (acknowledged, failed int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.writes), w.failed
}

// Await waits until a write has been acknowledged whose last attempt began after from, and returns when the first one was.
func (w *Writer) Await(ctx context.Context, from time.Time) (at time.Time, err error) {
	err = wait.PollUntilContextCancel(ctx, settlePoll, true, func(context.Context) (bool, error) {
		var is bool
		at, is = w.firstAfter(from)
		return is, nil
	})
	if err != nil {
		return at, fmt.Errorf("wait until a write to space %s is acknowledged: %w", w.target.Space, err)
	}
	return at, nil
}

func (w *Writer) firstAfter(from time.Time) (time.Time, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, done := range w.writes {
		if done.began.After(from) {
			return done.ended, true
		}
	}
	return time.Time{}, false
}

// Stop ends the writes, and waits until the clients have ended. What they wrote stays.
func (w *Writer) Stop() {
	w.cancel()
	w.group.Wait()
}

// Lost returns the names of the objects whose creation was acknowledged, and which the space doesn't have. It is called after Stop.
func (w *Writer) Lost(ctx context.Context) ([]string, error) {
	c, err := newClient(w.target, removeTime, "")
	if err != nil {
		return nil, err
	}
	defer c.disconnect()
	list := &corev1.ConfigMapList{}
	if err := c.to(c.api.Get()).Do(ctx).Into(list); err != nil {
		return nil, fmt.Errorf("list what was written to space %s: %w", w.target.Space, err)
	}
	have := map[string]bool{}
	for i := range list.Items {
		have[list.Items[i].Name] = true
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	var lost []string
	for _, done := range w.writes {
		if !have[done.name] {
			lost = append(lost, done.name)
		}
	}
	return lost, nil
}

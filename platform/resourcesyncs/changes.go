// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcesyncs

import (
	"context"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/internal/safego"
)

// changesAtOnce is how many spaces take up a change at once: others of the platform want to start meanwhile.
const changesAtOnce = 2

// Changes have spaces take up that something else is synced of them, few at once. They are safe for concurrent use.
type Changes struct {
	queue  workqueue.TypedRateLimitingInterface[string]
	logger klog.Logger
}

// NewChanges returns changes that wait for [Changes.Run]. Close has to be called.
func NewChanges(logger klog.Logger) *Changes {
	return &Changes{
		queue:  workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](time.Second, time.Minute)),
		logger: logger,
	}
}

// Add has a space take up what is synced of it. It does not block.
func (c *Changes) Add(space string) { c.queue.Add(space) }

// Close ends what Run began, and what was added since is forgotten.
func (c *Changes) Close() { c.queue.ShutDown() }

// Run calls takeUp for each space that was added, never concurrently for the same, until stop is called, which waits. After an error, it is
// called again later. A conflict is expected, and not logged.
func (c *Changes) Run(takeUp func(ctx context.Context, space string) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	for range changesAtOnce {
		safego.Go(&group, "take up what is synced of spaces", func() {
			for c.next(ctx, takeUp) {
			}
		}, nil)
	}
	return func() {
		cancel()
		c.Close()
		group.Wait()
	}
}

func (c *Changes) next(ctx context.Context, takeUp func(context.Context, string) error) bool {
	space, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(space)
	err := safego.Call("take up what is synced of a space", func() error { return takeUp(ctx, space) })
	switch {
	case ctx.Err() != nil:
	case err != nil:
		if !apierrors.IsConflict(err) {
			c.logger.Error(err, "A space could not take up what is synced of it; Berth retries", "space", space)
		}
		c.queue.AddRateLimited(space)
	default:
		c.queue.Forget(space)
	}
	return true
}

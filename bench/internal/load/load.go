// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package load

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"
)

const (
	// settlePoll is how often [Load.Settle] looks.
	settlePoll = 5 * time.Millisecond
	// removeTime is how long the clients may take at the end to delete what they wrote.
	removeTime = 30 * time.Second
)

// Target is a space, and how to reach it. Space is the name that [Load.Take] uses.
type Target struct {
	Space  string
	Config *rest.Config
}

// Options are those of a load.
type Options struct {
	// Clients is how many clients each space has. Each has a connection of its own.
	Clients int
	// Pause is between two requests of a client.
	Pause time.Duration
	// Held is the time from which a request counts as held.
	Held time.Duration
	// Timeout is how long a request may take until it fails.
	Timeout time.Duration
}

// Load is a load that runs. Its methods are safe for concurrent use; Stop may be called once.
type Load struct {
	options Options
	cancel  context.CancelFunc
	group   sync.WaitGroup
	clients []*client

	mu    sync.Mutex
	stats map[string]*Stats
}

// Start has clients make requests until Stop is called or ctx ends. Each writes to a ConfigMap of its own in the namespace default,
// and reads what it wrote.
func Start(ctx context.Context, targets []Target, o Options) (*Load, error) {
	l := &Load{options: o, stats: map[string]*Stats{}}
	for _, target := range targets {
		for i := range o.Clients {
			c, err := newClient(target, o.Timeout, fmt.Sprintf("load-%d-%d", time.Now().UnixNano(), i))
			if err != nil {
				return nil, err
			}
			c.note = func(took time.Duration, err error) { l.note(target.Space, took, err) }
			l.clients = append(l.clients, c)
		}
	}
	ctx, l.cancel = context.WithCancel(ctx)
	for i, c := range l.clients {
		l.group.Go(func() {
			// The clients begin one after the other, so that they don't ask at the same moments.
			pause(ctx, o.Pause*time.Duration(i)/time.Duration(len(l.clients)))
			for ctx.Err() == nil {
				c.once(ctx)
				pause(ctx, o.Pause)
			}
		})
	}
	return l, nil
}

func pause(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

func (l *Load) note(space string, took time.Duration, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stats[space] == nil {
		l.stats[space] = &Stats{}
	}
	l.stats[space].note(took, l.options.Held, err)
}

// Take returns what became of the requests that have ended since Take was called before, by space.
func (l *Load) Take() map[string]Stats {
	l.mu.Lock()
	defer l.mu.Unlock()
	taken := map[string]Stats{}
	for space, s := range l.stats {
		taken[space] = *s
	}
	l.stats = map[string]*Stats{}
	return taken
}

// TakeAll is Take of all spaces together.
func (l *Load) TakeAll() (sum Stats) {
	for _, s := range l.Take() {
		sum.Add(s)
	}
	return sum
}

// Settle waits until each client has got an answer to a request that began after Settle was called.
func (l *Load) Settle(ctx context.Context) error {
	from := time.Now()
	err := wait.PollUntilContextCancel(ctx, settlePoll, true, func(context.Context) (bool, error) {
		for _, c := range l.clients {
			if !c.answeredAfter(from) {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("wait until all clients got an answer: %w", err)
	}
	return nil
}

// Stop ends the load, waits for the last answers, and deletes what the clients wrote.
func (l *Load) Stop() error {
	l.cancel()
	l.group.Wait()
	ctx, cancel := context.WithTimeout(context.Background(), removeTime)
	defer cancel()
	errs := make([]error, len(l.clients))
	var group sync.WaitGroup
	for i, c := range l.clients {
		group.Go(func() { errs[i] = c.remove(ctx) })
	}
	group.Wait()
	return errors.Join(errs...)
}

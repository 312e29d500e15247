// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package keeper

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/bounds"
	shareddefinitions "github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/vcluster/inside"
)

const (
	// period is how often all objects are compared. Changes that a watch shows are repaired at once.
	period = 10 * time.Minute
	// firstRetry and lastRetry limit the pause after a pass that failed, which doubles.
	firstRetry, lastRetry = 200 * time.Millisecond, time.Minute
	// writesPerSecond and burst limit the writes, so that a tenant that breaks things in a loop costs bounded work.
	writesPerSecond, burst = 100, 1000
	// firstFailures is how many passes may fail before a space serves requests without all objects. A definition that was just made
	// fails the first pass, because its kind is not served yet.
	firstFailures = 3
	// maxKept is the maximum number of objects that are kept in a space. Owners can cause many role bindings. These may take three
	// quarters, so that policies can always be written: without them, no pod is admitted.
	maxKept           = 20_000
	maxKeptForBinding = maxKept * 3 / 4
	// knownBytes is about what the keeper remembers of one.
	knownBytes = 512
	// maxErrors is how many errors of a pass are kept.
	maxErrors = 10
	// callTimeout limits a call. Webhooks that convert custom resources are the tenant's, and are called for the keeper, too.
	callTimeout = 10 * time.Second
)

// Config says what to keep, and by what.
type Config struct {
	Source *access.Source
	// Loopback calls the API with all rights.
	Loopback  *rest.Config
	Informers informers.SharedInformerFactory
	// Shared has the definitions that the platform shares with the space; nil if there are none.
	Shared *shareddefinitions.Source
	// Demoted, if set, is called when a ServiceAccount that was promoted may have been demoted.
	Demoted func()
	// Account counts what the keeper remembers. Nothing is counted if it is nil.
	Account *bounds.Account
	Logger  klog.Logger
}

// Keeper keeps objects of one control plane.
type Keeper struct {
	config    Config
	objects   dynamic.Interface
	metadata  metadata.Interface
	discovery discovery.DiscoveryInterface
	pace      *rate.Limiter
	checked   bool          // whether it is known that nothing is left of an earlier run
	first     chan struct{} // closed by finish
	finish    func()
	made      madeBindings
	// promotions says that other ServiceAccounts are promoted than when the templates were made.
	promotions atomic.Bool

	mu         sync.Mutex
	followings []following
	queue      queue
	// known are the objects that are as they should be, in their version.
	known map[key]verified
	// counted is how many of known the account has.
	counted int64
}

// verified says that an object was written as desired.
type verified struct{ sum, version string }

// New returns a keeper that does not run.
func New(c Config) (*Keeper, error) {
	k := &Keeper{config: c, pace: rate.NewLimiter(writesPerSecond, burst), queue: newQueue(), known: map[key]verified{}, first: make(chan struct{})}
	k.finish = sync.OnceFunc(func() { close(k.first) })
	calls := rest.CopyConfig(c.Loopback)
	calls.Timeout = callTimeout
	var err error
	if k.objects, err = dynamic.NewForConfig(calls); err != nil {
		return nil, fmt.Errorf("make client for kept objects: %w", err)
	}
	if k.metadata, err = metadata.NewForConfig(calls); err != nil {
		return nil, fmt.Errorf("make client for kept objects: %w", err)
	}
	if k.discovery, err = discovery.NewDiscoveryClientForConfig(calls); err != nil {
		return nil, fmt.Errorf("make client for kept objects: %w", err)
	}
	return k, nil
}

// First returns a channel that is closed when all objects are kept for the first time, or that failed several times.
func (k *Keeper) First() <-chan struct{} { return k.first }

// count tells the account how much is remembered.
func (k *Keeper) count() {
	k.mu.Lock()
	defer k.mu.Unlock()
	now := int64(len(k.known))
	k.config.Account.Add(bounds.MemoryBytes, max(0, now-k.counted)*knownBytes)
	k.config.Account.Give(bounds.MemoryBytes, max(0, k.counted-now)*knownBytes)
	k.counted = now
}

// Run keeps objects until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	ctx = inside.MarkKeeper(ctx)
	backoff := newBackoff()
	for ctx.Err() == nil {
		_, changed := k.config.Source.Watch()
		rules := k.config.Source.Rules()
		if !rules.Enforces() && !k.isFollowing() {
			left, err := k.hasLeft(ctx)
			switch {
			case err != nil:
				backoff.wait(ctx, changed)
				continue
			case !left:
				k.finish()
				select {
				case <-changed:
				case <-ctx.Done():
				}
				continue
			}
		}
		if err := k.follow(ctx); err != nil {
			k.config.Logger.Error(err, "Could not follow what the tenant's objects depend on; Berth retries")
			backoff.wait(ctx, changed)
			continue
		}
		backoff = newBackoff()
		k.keep(ctx, rules, changed)
	}
}

// hasLeft reports whether an earlier run of the space left something that must be removed. It reads that once.
func (k *Keeper) hasLeft(ctx context.Context) (bool, error) {
	if k.checked {
		return false, nil
	}
	left, err := k.readRecord(ctx)
	k.checked = err == nil
	return left != nil, err
}

// keep keeps the objects of one state until it changes, ctx ends, or it says to keep nothing and nothing is left.
func (k *Keeper) keep(ctx context.Context, rules *access.Rules, changed <-chan struct{}) {
	ctx, cancel := context.WithCancel(ctx)
	var watching sync.WaitGroup
	defer watching.Wait()
	defer cancel()
	var shared <-chan struct{} // a forced definition takes its group back
	if k.config.Shared != nil {
		_, shared = k.config.Shared.Watch()
	}
	safego.Go(&watching, "end a pass when the tenant changes", func() {
		select {
		case <-changed:
			cancel()
		case <-shared:
			cancel()
		case <-ctx.Done():
		}
	}, nil)
	backoff, next := newBackoff(), time.Time{}
	var kept *desired
	failures := 0
	for ctx.Err() == nil {
		k.count()
		now := time.Now()
		switch name, due := k.queue.next(now); {
		case !now.Before(next):
			var err error
			if kept, err = k.keepAll(ctx, rules); err != nil {
				if ctx.Err() == nil {
					k.config.Logger.Info("Could not keep all objects of the tenant; Berth retries", "err", err)
				}
				if failures++; failures >= firstFailures {
					k.finish()
				}
				next = time.Now().Add(backoff.step())
				break
			}
			k.finish()
			if !rules.Enforces() {
				k.unfollow()
				k.count()
				return
			}
			backoff, next = newBackoff(), time.Now().Add(wait.Jitter(period, 0.2))
		case name != "":
			err := k.keepNamespace(ctx, rules, kept, name)
			if err != nil && ctx.Err() == nil {
				k.config.Logger.V(1).Info("Could not keep the objects of a namespace; Berth retries", "namespace", name, "err", err)
			}
			k.queue.done(name, err != nil, time.Now())
		default:
			if due.IsZero() || next.Before(due) {
				due = next
			}
			timer := time.NewTimer(time.Until(due))
			select {
			case <-k.queue.signal:
			case <-timer.C:
			case <-ctx.Done():
			}
			timer.Stop()
		}
	}
}

// backoff is a pause that doubles.
type backoff struct{ pause time.Duration }

func newBackoff() *backoff { return &backoff{firstRetry} }

func (b *backoff) step() time.Duration {
	pause := b.pause
	b.pause = min(2*b.pause, lastRetry)
	return pause
}

// wait returns after the pause, or when the state has changed, or ctx has ended.
func (b *backoff) wait(ctx context.Context, changed <-chan struct{}) {
	timer := time.NewTimer(b.step())
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-changed:
	case <-ctx.Done():
	}
}

// failures are the first errors of a pass.
type failures []error

func (f *failures) add(err error) {
	if err != nil && len(*f) < maxErrors {
		*f = append(*f, err)
	}
}

func (f failures) join() error { return errors.Join(f...) }

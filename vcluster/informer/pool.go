// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package informer

import (
	"context"
	"maps"
	"reflect"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers/internalinterfaces"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/internal/heapsize"
	"github.com/berth-dev/berth/internal/safego"
)

// Resync is upstream's default of the controller manager's --min-resync-period.
const Resync = 12 * time.Hour

// Pool holds the informers of one control plane. Its methods may be called
// concurrently.
type Pool struct {
	client  kubernetes.Interface
	feed    *Feed
	account *bounds.Account
	ctx     context.Context
	cancel  context.CancelFunc
	begin   sync.Once
	feeds   sync.WaitGroup // the feed, and informers that read the API

	mu      sync.Mutex
	members map[reflect.Type]*member
}

// member is an informer and how many use it.
type member struct {
	cache.SharedIndexInformer
	stored  *storeInformer    // the same, unless it reads the API
	counter *heapsize.Counter // of one that reads the API
	users   int
	gone    bool               // it must not be started any more
	cancel  context.CancelFunc // nil until it is started
	done    chan struct{}
}

// NewPool returns a pool of informers that read feed's store, or by client what
// is not in the store as such. What they hold is counted by the account, which may
// be nil. Nothing runs until a view is started.
func NewPool(client kubernetes.Interface, feed *Feed, account *bounds.Account, logger klog.Logger) *Pool {
	p := &Pool{client: client, feed: feed, account: account, members: map[reflect.Type]*member{}}
	p.ctx, p.cancel = context.WithCancel(klog.NewContext(context.Background(), logger))
	return p
}

// Feed returns the pool's feed, and runs it.
func (p *Pool) Feed() *Feed {
	p.begin.Do(func() { safego.Go(&p.feeds, "watch the store", func() { p.feed.Run(p.ctx) }, nil) })
	return p.feed
}

// Stop ends all informers and the feed, and waits for them.
func (p *Pool) Stop() {
	p.begin.Do(func() {}) // not any more
	p.cancel()
	p.mu.Lock()
	members := p.members
	p.members = map[reflect.Type]*member{}
	for _, m := range members {
		m.gone = true
	}
	p.mu.Unlock()
	for _, m := range members {
		m.end()
	}
	p.feeds.Wait()
}

// use returns the informer for objects like example, for one more user.
func (p *Pool) use(example runtime.Object, newFunc internalinterfaces.NewInformerFunc) *member {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := reflect.TypeOf(example)
	m, ok := p.members[t]
	if !ok {
		m = p.member(example, newFunc)
		p.members[t] = m
	}
	m.users++
	return m
}

func (p *Pool) member(example runtime.Object, newFunc internalinterfaces.NewInformerFunc) *member {
	m := &member{done: make(chan struct{})}
	if prefix, d, ok := storedAs(example); ok {
		m.stored = newStoreInformer(p.feed, prefix, d, p.hold)
		m.SharedIndexInformer = m.stored
		return m
	}
	m.SharedIndexInformer = newFunc(p.client, Resync)
	_ = m.SetTransform(Trim)                                     // fails only if it runs
	m.counter, _ = heapsize.Count(m.SharedIndexInformer, p.hold) // fails only if it has stopped
	return m
}

// hold notes that informers hold more bytes in memory, or fewer.
func (p *Pool) hold(bytes int64) { p.account.Add(bounds.CachedBytes, bytes) }

// start runs those of the informers that don't run yet.
func (p *Pool) start(members []*member) {
	p.Feed()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ctx.Err() != nil {
		return
	}
	for _, m := range members {
		if m.cancel != nil || m.gone {
			continue
		}
		ctx, cancel := context.WithCancel(p.ctx)
		m.cancel = cancel
		if m.stored != nil {
			m.stored.start(ctx) // no goroutine waits in it
			close(m.done)
			continue
		}
		safego.Go(&p.feeds, "run an informer", func() {
			defer close(m.done)
			m.RunWithContext(ctx)
		}, nil)
	}
}

// Resync tells the users of the informers for objects like these of all of them again, as if each was updated. Informers that nobody uses,
// or that don't read the store, aren't affected.
func (p *Pool) Resync(examples ...runtime.Object) {
	for _, example := range examples {
		p.mu.Lock()
		m := p.members[reflect.TypeOf(example)]
		p.mu.Unlock()
		if m != nil && m.stored != nil {
			m.stored.resync()
		}
	}
}

// leave ends those of the informers that nobody else uses.
func (p *Pool) leave(members []*member) {
	var unused []*member
	p.mu.Lock()
	for _, m := range members {
		if m.users--; m.users > 0 {
			continue
		}
		m.gone = true
		maps.DeleteFunc(p.members, func(_ reflect.Type, other *member) bool { return m == other })
		unused = append(unused, m)
	}
	p.mu.Unlock()
	for _, m := range unused {
		m.end()
	}
}

// end must be called when nobody can start the informer any more.
func (m *member) end() {
	if m.cancel != nil {
		m.cancel()
		<-m.done
	}
	if m.counter != nil {
		m.counter.Stop()
	}
	if m.stored != nil {
		m.stored.stop()
	}
}

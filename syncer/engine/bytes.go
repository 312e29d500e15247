// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/syncer/resources"
)

const (
	// large is the size from which host objects are not updated at any rate. In the host's store, each update is a
	// version of its own until it is compacted.
	large = 16 << 10
	// largePause is the pause between two updates of such an object.
	largePause = 10 * time.Second
)

// pacedError is returned for a write that came too soon. after is when to retry.
type pacedError struct {
	after time.Duration
	why   string
}

func (e *pacedError) Error() string { return fmt.Sprintf("%s; wait %s", e.why, e.after) }

// tooMuch is why a space's writes are paced.
const tooMuch = "the space exceeded its limit of host writes"

// Later returns the error of a write that comes too soon, for a reason. It is tried again after a time, and nobody is told.
func Later(after time.Duration, why string) error { return &pacedError{after, why} }

// bounded is a client of the host as a space's account. It limits how many bytes the space may have there, and may
// write in a minute. It tells the syncer of successful writes.
type bounded struct {
	client.Client
	host  *hostcache.Host
	bytes *ledger
	pace  *pace
	wrote func()
}

func (b *bounded) Create(ctx context.Context, obj client.Object, opts ...client.CreateOption) error {
	return b.write(obj, false, func() error { return b.Client.Create(ctx, obj, opts...) })
}

func (b *bounded) Update(ctx context.Context, obj client.Object, opts ...client.UpdateOption) error {
	return b.write(obj, true, func() error { return b.Client.Update(ctx, obj, opts...) })
}

func (b *bounded) write(obj client.Object, update bool, send func() error) error {
	o, size := hostcache.Object{Resource: resourceOf(b.host, obj), NamespacedName: client.ObjectKeyFromObject(obj)}, sizeOf(obj)
	undo, err := b.bytes.Take(o, size)
	if err != nil {
		return err
	}
	if err = b.pace.wait(o, size, update); err == nil {
		err = send()
	}
	if err != nil {
		undo()
		return err
	}
	b.wrote()
	return nil
}

// SubResource counts writes of a subresource as writes of the whole object, because the host's store writes the whole
// object.
func (b *bounded) SubResource(name string) client.SubResourceClient {
	return &boundedVia{b.Client.SubResource(name), b}
}

func (b *bounded) Status() client.SubResourceWriter { return b.SubResource("status") }

// boundedVia is a subresource client with the same limits.
type boundedVia struct {
	client.SubResourceClient
	of *bounded
}

func (b *boundedVia) Update(ctx context.Context, obj client.Object, opts ...client.SubResourceUpdateOption) error {
	return b.of.write(obj, true, func() error { return b.SubResourceClient.Update(ctx, obj, opts...) })
}

func (b *boundedVia) Patch(ctx context.Context, obj client.Object, patch client.Patch, opts ...client.SubResourcePatchOption) error {
	return b.of.write(obj, true, func() error { return b.SubResourceClient.Patch(ctx, obj, patch, opts...) })
}

// pace limits the bytes that a space writes to the host in a minute, and how often it updates a large object that is
// not a pod. A nil pace limits nothing.
type pace struct {
	account *bounds.Account
	clock   clock.PassiveClock

	mu    sync.Mutex
	left  float64 // bytes that may be written now
	at    time.Time
	large map[hostcache.Object]time.Time // when large objects were last written
}

func newPace(a *bounds.Account, c clock.PassiveClock) *pace {
	if a == nil {
		return nil
	}
	return &pace{account: a, clock: c, left: float64(a.Limit(bounds.SyncedBytesPerMinute)), at: c.Now(), large: map[hostcache.Object]time.Time{}}
}

// wait returns a pacedError if a write comes too soon, and otherwise counts it.
func (p *pace) wait(o hostcache.Object, size int64, update bool) error {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.clock.Now()
	if update && size > large && o.Resource != resources.Pods { // Services may select pods by their labels, so these must be current
		if after := largePause - now.Sub(p.large[o]); after > 0 {
			return &pacedError{after, tooMuch}
		}
	}
	limit := float64(p.account.Limit(bounds.SyncedBytesPerMinute))
	perSecond := limit / time.Minute.Seconds()
	p.left, p.at = min(limit, p.left+now.Sub(p.at).Seconds()*perSecond), now
	need := min(float64(size), limit) // a larger object must pass, too
	if p.left < need {
		p.account.Refuse(bounds.SyncedBytesPerMinute)
		return &pacedError{max(time.Duration((need-p.left)/perSecond*float64(time.Second)), FirstRetry), tooMuch}
	}
	p.left -= need
	if size > large {
		p.note(o, now)
	}
	return nil
}

// note records when a large object was written, and removes those that may be written again.
func (p *pace) note(o hostcache.Object, now time.Time) {
	p.large[o] = now
	for other, at := range p.large {
		if now.Sub(at) >= largePause {
			delete(p.large, other)
		}
	}
}

// sizeOf returns the encoded size of a host object, as it is sent, or as it is in the shared watches, where a digest
// replaces the data.
func sizeOf(obj client.Object) int64 {
	size := digestedSize(obj.GetAnnotations()[hostcache.AnnotationDigest])
	if o, ok := obj.(interface{ Size() int }); ok {
		return size + int64(o.Size())
	}
	encoded, err := json.Marshal(obj)
	if err != nil {
		return size
	}
	return size + int64(len(encoded))
}

// digestedSize returns the size of the data of a digest.
func digestedSize(digest string) int64 {
	_, size, _ := strings.Cut(digest, ".")
	n, err := strconv.ParseInt(size, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

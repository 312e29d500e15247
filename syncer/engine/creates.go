// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/syncer/hostcache"
)

// Bound limits how many host objects of a resource a space may have, for resources that no quota of the host can limit:
// cluster-scoped objects, and resources that the host may have got after its controllers started, of which a quota
// would reject all.
type Bound struct {
	most int
	of   string // the tenant's name for them
}

// Bound returns the space's limit of host objects of a resource.
func (s *Engine) Bound(limit bounds.Quantity, of string) Bound {
	if s.account == nil { // in tests
		return Bound{limit.Max(), of}
	}
	return Bound{int(s.account.Limit(limit)), of}
}

// AtMost limits host objects to a number. of is the tenant's name for them.
func AtMost(most int, of string) Bound { return Bound{most, of} }

// pendingCreates are the host objects of resources with a [Bound] that are not in the host's watches yet. Objects are
// created concurrently, and each create must count the others.
type pendingCreates struct {
	mu sync.Mutex
	of map[hostcache.Object]*pendingCreate
}

// pendingCreate is a host object that is being created, or was created with some version.
type pendingCreate struct {
	tries   int // current attempts
	version uint64
}

// errPanicked is the result of a create that panicked.
var errPanicked = errors.New("panicked")

// createHost creates v's host object, unless a quota or a limit is reached.
func (k *Resource[T]) createHost(ctx context.Context, v, host T) error {
	key := Key{Resource: k.Name, NamespacedName: client.ObjectKeyFromObject(v)}
	try, err := k.shortages.enter(key, host)
	if err != nil {
		return err
	}
	err = errPanicked
	defer func() { k.shortages.done(try, key, host, err) }() // otherwise, the objects that wait for this attempt would wait forever
	err = k.CreateBounded(ctx, host)
	return err
}

// CreateBounded creates a host object, unless the limit of its resource is reached. No quota of the host counts it.
func (k *Resource[T]) CreateBounded(ctx context.Context, host T) error {
	if k.Bound.most == 0 {
		return CreateOnHost(ctx, k.HostAPI, host)
	}
	o := hostcache.Object{Resource: k.Name, NamespacedName: client.ObjectKeyFromObject(host)}
	if err := k.reserveCreate(o); err != nil {
		return err
	}
	err := errPanicked
	defer func() { k.creates.done(o, host, err) }()
	err = CreateOnHost(ctx, k.HostAPI, host)
	return err
}

// reserveCreate counts an object that is about to be created, or returns an error if the limit is reached.
func (k *Resource[T]) reserveCreate(o hostcache.Object) error {
	k.creates.mu.Lock()
	defer k.creates.mu.Unlock()
	router := k.Host.Router(k.Name)
	if router == nil {
		return hostcache.ErrUndeclared
	}
	delivered := router.Delivered.Load() // must be read before the cache
	others := map[types.NamespacedName]struct{}{}
	for host := range hostcache.Of[T](k.Host, k.Space.Name, k.Name) {
		others[client.ObjectKeyFromObject(host)] = struct{}{}
	}
	for made, p := range k.creates.of {
		switch {
		case made.Resource != k.Name || made == o:
		case p.tries == 0 && p.version <= delivered:
			delete(k.creates.of, made)
		default:
			others[made.NamespacedName] = struct{}{}
		}
	}
	if len(others) >= k.Bound.most {
		return Forbid(field.ErrorList{field.Forbidden(field.NewPath("metadata", "name"),
			fmt.Sprintf("at most %d %s are possible; delete some", k.Bound.most, k.Bound.of))})
	}
	if k.creates.of[o] == nil {
		k.creates.of[o] = &pendingCreate{}
	}
	k.creates.of[o].tries++
	return nil
}

// done records the result of a create.
func (c *pendingCreates) done(o hostcache.Object, host client.Object, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p := c.of[o]
	p.tries--
	if err == nil {
		p.version = hostcache.Version(host.GetResourceVersion())
	}
	if p.tries == 0 && p.version == 0 {
		delete(c.of, o)
	}
}

// SetOwner makes the space's namespace on the host the owner of a cluster-scoped host object, so that it is deleted with
// the space.
func (s *Engine) SetOwner(ctx context.Context, host client.Object) error {
	ns := &corev1.Namespace{}
	if err := s.Host.Reader.Get(ctx, types.NamespacedName{Name: s.Space.HostNamespace()}, ns); err != nil {
		return fmt.Errorf("read the space's host namespace: %w", err)
	}
	host.SetOwnerReferences([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Namespace", Name: ns.Name, UID: ns.UID}})
	return nil
}

// CreateOnHost retries when the host responds with a conflict. The conflict is not about the object, but about the
// quota, whose usage other requests update at the same time. The host's API server reads the quota again within
// milliseconds.
func CreateOnHost(ctx context.Context, host client.Client, object client.Object) error {
	var last error
	err := wait.ExponentialBackoffWithContext(ctx, contention(), func(ctx context.Context) (done bool, err error) {
		last = host.Create(ctx, object)
		if apierrors.IsConflict(last) {
			return false, nil
		}
		return true, last
	})
	if last != nil {
		return last
	}
	return err
}

// contention is the backoff of writes that conflict with updates of the quota: one second in total.
func contention() wait.Backoff {
	return wait.Backoff{Duration: 5 * time.Millisecond, Factor: 1.7, Jitter: 0.5, Steps: 10}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/translate"
)

const (
	// maxNamespaceLists is up to how many spaces are listed by their namespaces. More are picked from a list of all.
	maxNamespaceLists = 32
	// listPage is how many objects a request returns at most, and listTimeout how long it may take.
	listPage, listTimeout = 500, 30 * time.Second
	// dataPage is listPage for config maps and secrets. The cache keeps only digests of their data, but a page has all of
	// it, up to 1 MiB for each object, so that 500 may be hundreds of MiB.
	dataPage = 50
	// listAttempts is how often a list begins again that the host, or the watch, has overtaken.
	listAttempts = 4
	// maxGone is how many deleted objects of a space are noted while it is listed. If a space deletes more, it is
	// listed again.
	maxGone = 1000
)

var (
	errOwnMeanwhile = errors.New("a space became this process's during the list")
	errReplaced     = errors.New("the watch began again during the list")
	errOvertaken    = errors.New("the host's objects changed too fast to list them")
)

// listing is a list of what the host has of spaces that have become this process's.
type listing struct {
	spaces map[string]bool
	// gone has the keys that the watch has deleted since the list began, by space, and the versions of the deletions.
	gone map[string]map[string]uint64
	// lost are the spaces of which too many were deleted to note them. No more is taken of them, because it may be gone.
	// What was taken before is right: the watch removes it when it is deleted.
	lost map[string]bool
	// replaced means that the watch began again, so that objects may be gone that are not in gone. What has been stored
	// before is right, and the rest of the list may not be.
	replaced bool
}

// fill lists what the host has of spaces, and stores what is newer than what the watch has brought. lost are spaces of
// which something may be missing.
func (r *Router) fill(ctx context.Context, spaces []string) (lost []string, err error) {
	for range listAttempts {
		l := r.beginListing(spaces)
		if l == nil {
			return nil, nil
		}
		err = r.listInto(ctx, l)
		r.endListing(l)
		switch {
		case apierrors.IsResourceExpired(err), errors.Is(err, errReplaced):
			continue
		case err != nil:
			return nil, err
		}
		for space := range l.lost {
			lost = append(lost, space)
		}
		return lost, nil
	}
	return nil, errors.Join(errOvertaken, err)
}

// beginListing returns nil if the watch itself brings what the host has of the spaces. That is decided while it
// processes nothing: what it is just syncing, it may have reduced before the spaces became this process's.
func (r *Router) beginListing(spaces []string) *listing {
	l := &listing{spaces: make(map[string]bool, len(spaces)), gone: map[string]map[string]uint64{}, lost: map[string]bool{}}
	for _, space := range spaces {
		l.spaces[space] = true
	}
	r.writes.Lock()
	defer r.writes.Unlock()
	if r.beginsLater && !r.isFilled() {
		return nil
	}
	if r.listings == nil {
		r.listings = map[*listing]struct{}{}
	}
	r.listings[l] = struct{}{}
	return l
}

func (r *Router) endListing(l *listing) {
	r.writes.Lock()
	defer r.writes.Unlock()
	delete(r.listings, l)
}

// listInto lists the objects of each space in its namespace, or picks them from a list of all.
func (r *Router) listInto(ctx context.Context, l *listing) error {
	if r.clusterScoped || len(l.spaces) > maxNamespaceLists {
		return r.listNamespace(ctx, l, metav1.NamespaceAll)
	}
	for space := range l.spaces {
		if err := r.listNamespace(ctx, l, translate.Space{Name: space}.HostNamespace()); err != nil {
			return err
		}
	}
	return nil
}

func (r *Router) listNamespace(ctx context.Context, l *listing, namespace string) error {
	o := metav1.ListOptions{Limit: r.page} // without a version: the latest objects
	for {
		page, err := r.listPage(ctx, namespace, o)
		if apierrors.IsNotFound(err) {
			return nil // a custom resource whose definition is gone, and so are the objects
		}
		if err != nil {
			return err
		}
		of, err := meta.ListAccessor(page)
		if err != nil {
			return err
		}
		if err := r.takePage(l, page, of.GetResourceVersion()); err != nil {
			return err
		}
		if o.Continue = of.GetContinue(); o.Continue == "" {
			return nil
		}
	}
}

func (r *Router) listPage(ctx context.Context, namespace string, o metav1.ListOptions) (runtime.Object, error) {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	return r.list(ctx, namespace, o)
}

// takePage stores the objects of a page. The watch may be behind its version.
func (r *Router) takePage(l *listing, page runtime.Object, resourceVersion string) error {
	r.writes.Lock()
	defer r.writes.Unlock()
	if l.replaced {
		return errReplaced
	}
	if v := Version(resourceVersion); v > r.Reached.Load() {
		r.ahead = max(r.ahead, v)
	}
	return meta.EachListItemWithAlloc(page, func(item runtime.Object) error {
		o, ok := item.(client.Object)
		if !ok {
			return fmt.Errorf("host list: %T is not an object", item)
		}
		return r.takeListed(l, o)
	})
}

// takeListed stores an object of a list, unless the watch has, or may have, deleted it, or has brought a newer version.
// The caller holds writes.
func (r *Router) takeListed(l *listing, o client.Object) error {
	space := ownerOf(o)
	if !l.spaces[space] || l.lost[space] || !r.own(space) {
		return nil
	}
	key := cache.MetaObjectToName(o).String()
	if at, gone := l.gone[space][key]; gone && Version(o.GetResourceVersion()) <= at {
		return nil
	}
	is := r.Trim(o)
	was, _ := r.Get(key).(client.Object)
	if was != nil && !r.replaces(is, was) {
		return nil
	}
	if err := r.replace(is); err != nil {
		return err
	}
	if r.Matters != nil && !r.Matters(was, is) {
		return nil
	}
	r.Deliver(is, false)
	if r.Follow != nil {
		r.Follow(was, is)
	}
	return nil
}

// replaces reports whether an object of a list replaces what is stored: an earlier version, or what was kept of this
// version while the space was another process's. If versions are not numbers, what the watch brought counts.
func (r *Router) replaces(listed, stored client.Object) bool {
	anew, has := Version(listed.GetResourceVersion()), Version(stored.GetResourceVersion())
	wasReduced := r.SpaceOf(stored) == "" && r.SpaceOf(listed) != ""
	if anew == 0 || has == 0 {
		return wasReduced
	}
	return anew > has || anew == has && wasReduced
}

// noteGone notes for the lists under way that an object was deleted. The caller holds writes.
func (r *Router) noteGone(o client.Object) {
	if len(r.listings) == 0 {
		return
	}
	space := ownerOf(o)
	for l := range r.listings {
		switch {
		case !l.spaces[space]:
		case len(l.gone[space]) >= maxGone:
			l.lost[space] = true
		default:
			if l.gone[space] == nil {
				l.gone[space] = map[string]uint64{}
			}
			l.gone[space][cache.MetaObjectToName(o).String()] = Version(o.GetResourceVersion())
		}
	}
}

// isPast reports whether a list has already brought a newer version than the watch brings now. The caller holds writes.
func (r *Router) isPast(o client.Object) bool {
	v := Version(o.GetResourceVersion())
	if v >= r.ahead {
		return false
	}
	stored, ok := r.Get(cache.MetaObjectToName(o).String()).(client.Object)
	return ok && Version(stored.GetResourceVersion()) > v
}

// isLater reports whether a list has brought an object after the watch began again at a version. The caller holds
// writes.
func (r *Router) isLater(o client.Object, resourceVersion string) bool {
	v := Version(resourceVersion)
	return v < r.ahead && Version(o.GetResourceVersion()) > v
}

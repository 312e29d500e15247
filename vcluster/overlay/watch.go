// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"context"
	"path"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/internal/safego"
)

// definitionWatch is a watch of definitions. When other ones are in force, its client gets them as changes: an error that makes it list
// again would delay upstream's own informer by up to a minute, if it comes often.
type definitionWatch struct {
	storage *definitionStorage
	key     string
	opts    storage.ListOptions
	ctx     context.Context
	cancel  context.CancelFunc
	changed chan struct{}
	result  chan watch.Event
	set     *definitions.Set // that the client has seen
}

// Watch implements [storage.Interface].
func (d *definitionStorage) Watch(ctx context.Context, key string, opts storage.ListOptions) (watch.Interface, error) {
	from, err := d.Versioner().ParseResourceVersion(opts.ResourceVersion)
	if err != nil {
		return nil, err
	}
	w := &definitionWatch{storage: d, key: key, opts: opts, changed: make(chan struct{}, 1), result: make(chan watch.Event)}
	since := d.space.register(w)
	if from > 0 && from < uint64(since) && !isTrue(opts.SendInitialEvents) { //nolint:gosec // revisions are positive
		d.space.forget(w)
		return nil, errExpired()
	}
	w.ctx, w.cancel = context.WithCancel(ctx)
	inner, err := d.Interface.Watch(w.ctx, key, opts)
	if err != nil {
		w.cancel()
		d.space.forget(w)
		return nil, err
	}
	initial := isTrue(opts.SendInitialEvents) || opts.SendInitialEvents == nil && from == 0
	go safego.Run("hand on a watch of definitions", func() {
		defer d.space.forget(w)
		defer close(w.result)
		defer w.cancel()
		defer inner.Stop()
		w.run(inner, initial)
	}, func(error) { w.cancel() })
	return w, nil
}

func isTrue(b *bool) bool { return b != nil && *b }

func (s *Space) register(w *definitionWatch) (since int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watches[w] = struct{}{}
	w.set = s.set
	return s.revision
}

func (s *Space) forget(w *definitionWatch) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watches, w)
}

// notify has the watch look at what is in force. It doesn't wait.
func (w *definitionWatch) notify() {
	select {
	case w.changed <- struct{}{}:
	default:
	}
}

func (w *definitionWatch) run(inner watch.Interface, initial bool) {
	if initial {
		for _, name := range w.set.Names() {
			if (w.set.With(name).Shared || w.set.Without(name).Shared) && !w.report(name, nil, watch.Added) {
				return
			}
		}
	}
	for {
		select {
		case event, ok := <-inner.ResultChan():
			if !ok || !w.pass(event) {
				return
			}
		case <-w.changed:
			if !w.change() {
				return
			}
		case <-w.ctx.Done():
			return
		}
	}
}

// pass hands on an event of the space's own definitions, unless others are in force. It returns false at the end of the watch.
func (w *definitionWatch) pass(event watch.Event) bool {
	crd, ok := event.Object.(*apiextensions.CustomResourceDefinition)
	switch {
	case !ok || event.Type == watch.Bookmark:
	case w.set.With(crd.Name).Shared:
		return true
	case event.Type == watch.Deleted && w.set.Without(crd.Name).Shared:
		return w.report(crd.Name, crd, watch.Modified)
	}
	return w.send(event)
}

// change reports what is in force of each name that was or is shared. It returns false at the end of the watch.
func (w *definitionWatch) change() bool {
	set, since := w.storage.space.current()
	before := w.set
	w.set = set
	names := append(before.Names(), set.Names()...)
	slices.Sort(names)
	for _, name := range slices.Compact(names) {
		own, err := w.storage.hasOwn(bounds.WithReservation(w.ctx, nil), w.keyOf(name))
		if err != nil {
			return w.end()
		}
		was, is := inForce(before, name, own), inForce(set, name, own)
		if was == is {
			continue
		}
		var last *apiextensions.CustomResourceDefinition
		if was != nil {
			last, _ = internal(was, since)
		}
		if !w.report(name, last, watch.Modified) {
			return false
		}
	}
	if !w.opts.Predicate.AllowWatchBookmarks {
		return true
	}
	mark := &apiextensions.CustomResourceDefinition{}
	mark.ResourceVersion = strconv.FormatInt(since, 10)
	return w.send(watch.Event{Type: watch.Bookmark, Object: mark})
}

// inForce returns the shared definition of a name, if it is in force.
func inForce(set *definitions.Set, name string, own bool) *definitions.Shared {
	if own && set.With(name).Shared || !own && set.Without(name).Shared {
		return set.Of(name)
	}
	return nil
}

// keyOf is the key of a name's definition.
func (w *definitionWatch) keyOf(name string) string {
	if w.opts.Recursive {
		return strings.TrimSuffix(w.key, "/") + "/" + name
	}
	return path.Dir(w.key) + "/" + name
}

// end has the client list again.
func (w *definitionWatch) end() bool {
	status := errExpired().Status()
	w.send(watch.Event{Type: watch.Error, Object: &status})
	return false
}

// report sends which definition of a name is in force now. last is what the client may have. It returns false at the end of the watch.
func (w *definitionWatch) report(name string, last *apiextensions.CustomResourceDefinition, kind watch.EventType) bool {
	if !w.opts.Recursive && name != path.Base(w.key) {
		return true
	}
	ctx := bounds.WithReservation(w.ctx, nil) // one at a time
	crd := &apiextensions.CustomResourceDefinition{}
	err := w.storage.Get(ctx, w.keyOf(name), storage.GetOptions{}, crd)
	if err != nil && !storage.IsNotFound(err) {
		return w.end()
	}
	matches, wrong := w.opts.Predicate.Matches(crd)
	switch {
	case err == nil && wrong == nil && matches:
		return w.send(watch.Event{Type: kind, Object: crd})
	case last != nil:
		return w.send(watch.Event{Type: watch.Deleted, Object: last})
	}
	return true
}

func (w *definitionWatch) send(event watch.Event) bool {
	select {
	case w.result <- event:
		return true
	case <-w.ctx.Done():
		return false
	}
}

// ResultChan implements [watch.Interface].
func (w *definitionWatch) ResultChan() <-chan watch.Event { return w.result }

// Stop implements [watch.Interface].
func (w *definitionWatch) Stop() { w.cancel() }

var _ watch.Interface = &definitionWatch{}

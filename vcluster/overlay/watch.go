// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"context"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/vcluster/inside"
)

// definitionWatch is a watch of definitions. When other ones are in force, its client gets them as changes: an error that makes it list
// again would delay upstream's own informer by up to a minute, if it comes often.
//
// The revision of an event promises that the client has all changes before it. So the watch reports a switch when it has handed on all
// of the space's own changes from before.
type definitionWatch struct {
	storage *definitionStorage
	key     string
	opts    storage.ListOptions
	ctx     context.Context
	cancel  context.CancelFunc
	changed chan struct{}
	result  chan watch.Event
	set     *definitions.Set // by which events are handed on
	reached int64            // the revision up to which the client has all changes
	owed    bool             // a bookmark, because the definitions of the last switch may be older than it
	held    heldBytes
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
	w.reached = max(int64(from), since) //nolint:gosec // revisions are positive
	opts.ProgressNotify = true
	if bounds.ReservationOf(ctx) != nil && !inside.Is(ctx) { // the space's own are read without delay
		w.held.account = d.space.account
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
		defer w.held.give()
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
	if initial && !w.begin() {
		return
	}
	var again <-chan time.Time
	for {
		select {
		case event, ok := <-inner.ResultChan():
			if !ok || !w.receive(event) {
				return
			}
		case <-w.changed:
			again = w.ask()
		case <-again: // the store drops its answer if the client is slow
			again = w.ask()
		case <-w.ctx.Done():
			return
		}
	}
}

// begin reports which shared definitions are in force. It returns false at the end of the watch.
func (w *definitionWatch) begin() bool {
	own, err := w.storage.ownOf(bounds.WithReservation(w.ctx, nil), w.set, w.set.Names())
	if err != nil {
		return w.end()
	}
	for _, name := range w.set.Names() {
		if shared := sharedOf(w.set, name, own[name]); shared != nil && !w.report(name, shared, nil, watch.Added) {
			return false
		}
	}
	return true
}

// ask has the store say when it has reported all changes from before a switch. It returns when to ask again.
func (w *definitionWatch) ask() (again <-chan time.Time) {
	if set, _ := w.storage.space.current(); set == w.set {
		return nil
	}
	if err := w.storage.RequestWatchProgress(w.ctx); err != nil {
		klog.FromContext(w.ctx).V(1).Info("Could not ask for the progress of a watch; Berth retries", "err", err)
	}
	return time.After(retry)
}

// receive takes what the store reports. It returns false at the end of the watch.
func (w *definitionWatch) receive(event watch.Event) bool {
	var revision int64
	crd, ok := event.Object.(*apiextensions.CustomResourceDefinition)
	if ok {
		revision = revisionOf(crd)
	}
	if set, since := w.storage.space.current(); set != w.set && revision >= since {
		w.reached = max(w.reached, since)
		if !w.change(set) {
			return false
		}
	}
	w.reached = max(w.reached, revision)
	if !ok || event.Type != watch.Bookmark {
		return w.pass(event)
	}
	if initial, err := storage.HasInitialEventsEndBookmarkAnnotation(crd); err == nil && initial {
		return w.send(event)
	}
	if !w.owed {
		return true // the client has none from other watches, either
	}
	w.owed = false
	return w.send(event)
}

// pass hands on an event of the space's own definitions, unless others are in force. It returns false at the end of the watch.
func (w *definitionWatch) pass(event watch.Event) bool {
	crd, ok := event.Object.(*apiextensions.CustomResourceDefinition)
	switch {
	case !ok:
	case w.set.InForce(crd.Name, true).Shared:
		return true
	case event.Type == watch.Deleted && w.set.InForce(crd.Name, false).Shared:
		return w.replace(crd)
	}
	return w.send(event)
}

// replace reports that a shared definition is in force in place of the space's own one, which has been deleted. It returns false at the end of the
// watch.
func (w *definitionWatch) replace(own *apiextensions.CustomResourceDefinition) bool {
	if inside.Is(w.ctx) { // upstream's own informers go on with the resource
		return w.report(own.Name, w.set.Of(own.Name), own, watch.Modified)
	}
	// Clients such as `kubectl delete` wait for the end of the object that they know. Whoever watches again after that gets both events.
	gone := own.DeepCopy()
	gone.ResourceVersion = strconv.FormatInt(revisionOf(own)-1, 10)
	return w.send(watch.Event{Type: watch.Deleted, Object: gone}) && w.report(own.Name, w.set.Of(own.Name), nil, watch.Added)
}

// change reports what is in force of each name of which two sets differ. It returns false at the end of the watch.
func (w *definitionWatch) change(set *definitions.Set) bool {
	before := w.set
	w.set, w.owed = set, w.opts.Predicate.AllowWatchBookmarks
	names := append(before.Names(), set.Names()...)
	slices.Sort(names)
	names = slices.DeleteFunc(slices.Compact(names), func(name string) bool {
		return before.SameOf(name, set) || !w.opts.Recursive && name != path.Base(w.key)
	})
	if len(names) == 0 {
		return true
	}
	own, err := w.storage.space.ownNames(bounds.WithReservation(w.ctx, nil), "")
	if err != nil {
		return w.end()
	}
	for _, name := range names {
		was, is := sharedOf(before, name, own[name]), sharedOf(set, name, own[name])
		if was == nil && is == nil || was != nil && is != nil && definitions.SameContent(was.CRD, is.CRD) {
			continue
		}
		var last *apiextensions.CustomResourceDefinition
		if was != nil {
			last, _ = internal(was, w.reached)
		}
		if !w.report(name, is, last, watch.Modified) {
			return false
		}
	}
	return true
}

// sharedOf returns the shared definition of a name, if it is in force.
func sharedOf(set *definitions.Set, name string, own bool) *definitions.Shared {
	if set.InForce(name, own).Shared {
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

// report sends which definition of a name is in force: a shared one, or if that is nil, the space's own. last is what the client may have.
// It returns false at the end of the watch.
func (w *definitionWatch) report(name string, shared *definitions.Shared, last *apiextensions.CustomResourceDefinition, kind watch.EventType) bool {
	if !w.opts.Recursive && name != path.Base(w.key) {
		return true
	}
	crd, err := w.read(name, shared)
	if err != nil && !storage.IsNotFound(err) {
		return w.end()
	}
	matches, wrong := w.opts.Predicate.Matches(crd)
	switch {
	case err == nil && wrong == nil && matches && revisionOf(crd) > w.reached:
		return true // it is the space's own, and the store reports it next
	case err == nil && wrong == nil && matches && shared != nil:
		return w.sendShared(watch.Event{Type: kind, Object: crd}, shared.Size())
	case err == nil && wrong == nil && matches:
		return w.send(watch.Event{Type: kind, Object: crd})
	case last != nil:
		return w.send(watch.Event{Type: watch.Deleted, Object: last})
	}
	return true
}

// read returns a shared definition, or if that is nil, the space's own.
func (w *definitionWatch) read(name string, shared *definitions.Shared) (*apiextensions.CustomResourceDefinition, error) {
	if shared != nil {
		return internal(shared, w.reached)
	}
	crd := &apiextensions.CustomResourceDefinition{}
	ctx := bounds.WithReservation(w.ctx, nil) // one at a time
	return crd, w.storage.Interface.Get(ctx, w.keyOf(name), storage.GetOptions{}, crd)
}

// revisionOf returns the resource version of a definition, which the store has written.
func revisionOf(crd *apiextensions.CustomResourceDefinition) int64 {
	revision, _ := strconv.ParseInt(crd.ResourceVersion, 10, 64)
	return revision
}

func (w *definitionWatch) send(event watch.Event) bool {
	select {
	case w.result <- event:
		w.held.give() // the client has taken the event before
		return true
	case <-w.ctx.Done():
		return false
	}
}

// sendShared sends an event of a shared definition, which takes size bytes until the client has taken it. If the client's space has too many
// of these for long, the client lists again.
func (w *definitionWatch) sendShared(event watch.Event, size int64) bool {
	if !w.held.room(w.ctx, size) {
		return w.end()
	}
	if !w.send(event) {
		w.held.account.Give(bounds.WatchBytes, size)
		return false
	}
	w.held.keep(size)
	return true
}

// ResultChan implements [watch.Interface].
func (w *definitionWatch) ResultChan() <-chan watch.Event { return w.result }

// Stop implements [watch.Interface].
func (w *definitionWatch) Stop() { w.cancel() }

var _ watch.Interface = &definitionWatch{}

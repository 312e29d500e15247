// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package repairs puts back what isolates spaces on the host when somebody changes it.
package repairs

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/isolation"
)

const (
	// repairPause is how long the first repair waits for other changes; it doubles with each further change of the same object,
	// up to repairPauseMax.
	repairPause, repairPauseMax = 100 * time.Millisecond, time.Minute
	// conflictRetry is when a repair is tried again while something else is done to the space.
	conflictRetry = time.Second
	// repairQuiet is how long nobody must have changed an object for it to count as undisturbed.
	repairQuiet = 2 * repairPauseMax
	// repairers are how many spaces are repaired at once.
	repairers = 2
	// contested is after how many repairs of the same object somebody else is said to change it again and again.
	contested = 5
)

// Repairs put back what isolates spaces, and the policies of all spaces, when somebody changes it. It is safe for concurrent use.
type Repairs struct {
	queue workqueue.TypedRateLimitingInterface[string] // of spaces; "" is the policies
	// pauses are of objects: one that somebody else changes again and again is put back ever more rarely.
	pauses workqueue.TypedRateLimiter[isolatingObject]
	// repair puts back what isolates a space, or the policies. It fails with a conflict if something else is done to the space now.
	repair func(ctx context.Context, space string) error
	// changed is called when there is something else to say of a space than before.
	changed func(space string)
	logger  klog.Logger

	mu sync.Mutex
	of map[string]*disturbance // by space
}

type isolatingObject struct{ space, object string }

// disturbance is what somebody has changed of what isolates a space. There is one of each space for which that was done in the
// last repairQuiet, or that can't be repaired.
type disturbance struct {
	pending map[string]isolation.Change // what is to be put back, by object
	last    map[string]time.Time        // when it was changed last, by object
	failure error                       // of the last repair
}

// New returns repairs that run once [Repairs.Run] does. repair puts back what isolates a space, or the policies if the name is
// empty, and fails with a conflict if something else is done to the space now. changed is called when there is something else
// to say of a space than before.
func New(repair func(context.Context, string) error, changed func(string), logger klog.Logger) *Repairs {
	return &Repairs{
		queue:  workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](repairPause, repairPauseMax)),
		pauses: workqueue.NewTypedItemExponentialFailureRateLimiter[isolatingObject](repairPause, repairPauseMax),
		repair: repair, changed: changed, logger: logger, of: map[string]*disturbance{},
	}
}

// Note has what was changed put back soon. It does not block.
func (r *Repairs) Note(change isolation.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.of[change.Space]
	if d == nil {
		d = &disturbance{pending: map[string]isolation.Change{}, last: map[string]time.Time{}}
		r.of[change.Space] = d
	}
	d.last[change.Object] = time.Now()
	_, waits := d.pending[change.Object]
	d.pending[change.Object] = change
	if !waits || change.Field == "" { // a namespace that is gone at last can be made again at once
		r.queue.AddAfter(change.Space, r.pauses.When(isolatingObject{change.Space, change.Object}))
	}
}

// Run puts back what is noted until ctx ends.
func (r *Repairs) Run(ctx context.Context) {
	var group sync.WaitGroup
	for range repairers {
		safego.Go(&group, "repair isolation", func() {
			for r.next(ctx) {
			}
		}, nil)
	}
	<-ctx.Done()
	r.queue.ShutDown()
	group.Wait()
}

func (r *Repairs) next(ctx context.Context) bool {
	space, shutdown := r.queue.Get()
	if shutdown {
		return false
	}
	defer r.queue.Done(space)
	pending := r.take(space)
	if len(pending) == 0 {
		r.settle(space)
		return true
	}
	err := safego.Call("repair isolation", func() error { return r.repair(ctx, space) })
	switch {
	case ctx.Err() != nil:
	case errors.Is(err, ErrNotIsolated):
		r.forget(space)
	case apierrors.IsConflict(err): // something else is done to the space now
		r.putBack(space, pending, nil)
		r.queue.AddAfter(space, conflictRetry)
	case err != nil:
		r.logger.Error(err, "Could not restore objects that isolate a space on the host; Berth retries", "space", space, "changes", texts(pending))
		r.putBack(space, pending, err)
		r.queue.AddRateLimited(space)
	default:
		r.queue.Forget(space)
		r.repaired(space, pending)
		r.queue.AddAfter(space, repairQuiet)
	}
	return true
}

// ErrNotIsolated is of a space that is gone, or is being deleted, so that nothing is put back.
var ErrNotIsolated = errors.New("the space is gone")

// forget forgets what was changed of a space that is gone.
func (r *Repairs) forget(space string) {
	r.queue.Forget(space)
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := r.of[space]; d != nil {
		for object := range d.last {
			r.pauses.Forget(isolatingObject{space, object})
		}
		delete(r.of, space)
	}
}

// take returns what is to be put back now.
func (r *Repairs) take(space string) (pending map[string]isolation.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := r.of[space]; d != nil {
		pending, d.pending = d.pending, map[string]isolation.Change{}
	}
	return pending
}

// putBack notes that a repair has to be tried again.
func (r *Repairs) putBack(space string, pending map[string]isolation.Change, failure error) {
	r.mu.Lock()
	d := r.of[space]
	for object, change := range pending {
		if _, newer := d.pending[object]; !newer {
			d.pending[object] = change
		}
	}
	if failure != nil {
		d.failure = failure
	}
	r.mu.Unlock()
	if failure != nil {
		r.changed(space)
	}
}

// repaired notes that a repair is done.
func (r *Repairs) repaired(space string, pending map[string]isolation.Change) {
	r.mu.Lock()
	d := r.of[space]
	failed, fought := d.failure != nil, r.contested(space, d)
	d.failure = nil
	r.mu.Unlock()
	r.logger.Info("Restored objects that isolate a space on the host", "space", space, "changes", texts(pending))
	if len(fought) > 0 {
		r.logger.Error(errors.New("somebody changes the objects repeatedly; "+findOut), "Objects that isolate a space are restored less and less often", "space", space, "objects", fought)
	}
	if failed || len(fought) > 0 {
		r.changed(space)
	}
}

// settle forgets the objects of a space that nobody has changed for long.
func (r *Repairs) settle(space string) {
	r.mu.Lock()
	d := r.of[space]
	if d == nil {
		r.mu.Unlock()
		return
	}
	fought := len(r.contested(space, d)) > 0
	for object, last := range d.last {
		if time.Since(last) >= repairQuiet {
			r.pauses.Forget(isolatingObject{space, object})
			delete(d.last, object)
		}
	}
	calm := fought && len(r.contested(space, d)) == 0
	if len(d.last) == 0 && d.failure == nil {
		delete(r.of, space)
	}
	r.mu.Unlock()
	if calm {
		r.changed(space)
	}
}

// contested are the objects that somebody else changes again and again. r.mu is held.
func (r *Repairs) contested(space string, d *disturbance) (objects []string) {
	for object := range d.last {
		if r.pauses.NumRequeues(isolatingObject{space, object}) >= contested {
			objects = append(objects, object)
		}
	}
	slices.Sort(objects)
	return objects
}

// findOut is the remedy.
const findOut = "find out who by --show-managed-fields, and have it leave the object alone"

// Condition returns the condition Isolated of a space, and whether there is something to say: somebody contests its isolation,
// or did so when the status before was written.
func (r *Repairs) Condition(space string, before []metav1.Condition) (condition metav1.Condition, ok bool) {
	condition = metav1.Condition{
		Type: v1alpha1.ConditionIsolated, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonIsolated, Message: "the objects that isolate the space on the host are correct",
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	d := r.of[space]
	if d == nil {
		return condition, meta.FindStatusCondition(before, v1alpha1.ConditionIsolated) != nil
	}
	switch objects := r.contested(space, d); {
	case d.failure != nil:
		condition.Status, condition.Reason = metav1.ConditionFalse, v1alpha1.ReasonNotRepaired
		condition.Message = texts(d.pending) + " changed, and Berth could not restore it; Berth retries: " + d.failure.Error()
	case len(objects) > 0:
		condition.Status, condition.Reason = metav1.ConditionFalse, v1alpha1.ReasonContested
		condition.Message = "another client changes " + strings.Join(objects, ", ") + " repeatedly; " + findOut
	default:
		return condition, meta.FindStatusCondition(before, v1alpha1.ConditionIsolated) != nil
	}
	return condition, true
}

// texts says what was changed.
func texts(changes map[string]isolation.Change) string {
	var all []string
	for _, object := range slices.Sorted(maps.Keys(changes)) {
		all = append(all, changes[object].String())
	}
	return strings.Join(all, "; ")
}

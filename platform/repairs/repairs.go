// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package repairs restores objects that isolate spaces on the host when somebody changes them.
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
	// repairPause is how long the first repair waits for further changes. It doubles with each change of the same
	// object, up to repairPauseMax.
	repairPause, repairPauseMax = 100 * time.Millisecond, time.Minute
	// conflictRetry is the pause before a repair is retried that another operation on the space prevents.
	conflictRetry = time.Second
	// repairQuiet is how long nobody must have changed an object before its pause is reset.
	repairQuiet = 2 * repairPauseMax
	// repairers is how many spaces are repaired at once.
	repairers = 2
	// contested is the number of repairs of the same object after which it is reported that somebody changes it
	// repeatedly.
	contested = 5
)

// Repairs restore objects that isolate spaces, and the policies of all spaces, when somebody changes them. It is safe
// for concurrent use.
type Repairs struct {
	queue workqueue.TypedRateLimitingInterface[string] // names of spaces; "" stands for the policies
	// pauses are the pauses of objects. An object that somebody changes repeatedly is restored less and less often.
	pauses workqueue.TypedRateLimiter[isolatingObject]
	// repair restores the isolation of a space, or the policies. It fails with a conflict during another operation on
	// the space.
	repair func(ctx context.Context, space string) error
	// changed is called when the status of a space changes.
	changed func(space string)
	logger  klog.Logger

	mu sync.Mutex
	of map[string]*disturbance // by space
}

type isolatingObject struct{ space, object string }

// disturbance records which objects that isolate a space somebody has changed. It exists for spaces with changes in the
// last repairQuiet, or whose repair fails.
type disturbance struct {
	pending map[string]isolation.Change // changes to revert, by object
	last    map[string]time.Time        // when an object was last changed
	failure error                       // of the last repair
}

// New returns repairs, which start with [Repairs.Run]. repair restores the isolation of a space, or the policies if the
// name is empty. It fails with a conflict during another operation on the space. changed is called when the status of a
// space changes.
func New(repair func(context.Context, string) error, changed func(string), logger klog.Logger) *Repairs {
	return &Repairs{
		queue:  workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[string](repairPause, repairPauseMax)),
		pauses: workqueue.NewTypedItemExponentialFailureRateLimiter[isolatingObject](repairPause, repairPauseMax),
		repair: repair, changed: changed, logger: logger, of: map[string]*disturbance{},
	}
}

// Note schedules the repair of a change. It does not block.
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
	if !waits || change.Field == "" { // a namespace that has been deleted can be created again at once
		r.queue.AddAfter(change.Space, r.pauses.When(isolatingObject{change.Space, change.Object}))
	}
}

// Run repairs what Note records, until ctx ends.
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
	case apierrors.IsConflict(err): // another operation on the space is in progress
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

// ErrNotIsolated is returned by repair for a space that is gone or is being deleted, so that nothing is restored.
var ErrNotIsolated = errors.New("the space is gone")

// forget removes the changes of a space that is gone.
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

// take returns the changes to revert now.
func (r *Repairs) take(space string) (pending map[string]isolation.Change) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if d := r.of[space]; d != nil {
		pending, d.pending = d.pending, map[string]isolation.Change{}
	}
	return pending
}

// putBack records that a repair must be retried.
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

// repaired records a completed repair.
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

// settle removes the objects that nobody has changed for repairQuiet.
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

// contested returns the objects that somebody changes repeatedly. r.mu must be held.
func (r *Repairs) contested(space string, d *disturbance) (objects []string) {
	for object := range d.last {
		if r.pauses.NumRequeues(isolatingObject{space, object}) >= contested {
			objects = append(objects, object)
		}
	}
	slices.Sort(objects)
	return objects
}

// findOut is the remedy in messages.
const findOut = "find out who by --show-managed-fields, and have it leave the object alone"

// Condition returns the condition Isolated of a space, and whether it must be reported: if somebody changes the
// isolation repeatedly, or if the previous status says so.
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

// texts describes changes.
func texts(changes map[string]isolation.Change) string {
	var all []string
	for _, object := range slices.Sorted(maps.Keys(changes)) {
		all = append(all, changes[object].String())
	}
	return strings.Join(all, "; ")
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package publication

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/published"
	"github.com/berth-dev/berth/published/expression"
	"github.com/berth-dev/berth/sharing"
)

const (
	// retry is when to look again for a kind that the host doesn't have, slowRetry for a selection that is too large.
	retry, slowRetry = 10 * time.Second, 5 * time.Minute
)

// reconciler writes the PublishedObjects and the status of Publications.
type reconciler struct {
	client   client.Client
	mapper   meta.RESTMapper
	watches  *watches
	compiler *expression.Compiler
}

// outcome is what a reconcile found.
type outcome struct {
	objects  []chosen
	kept     int // objects that stay because their source can't be read
	problems []problem
	fields   published.Fields
	valid    bool // whether objects may be written
}

// Reconcile implements [reconcile.Reconciler].
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	if sharing.IsShare(request.Name) {
		return reconcile.Result{}, nil // package share publishes it
	}
	publication := &v1alpha1.Publication{}
	err := r.client.Get(ctx, request.NamespacedName, publication)
	if apierrors.IsNotFound(err) || err == nil && !publication.DeletionTimestamp.IsZero() {
		r.watches.use(request.Name, nil)
		return reconcile.Result{}, r.deleteAll(ctx, request.Name) // the host's garbage collector does so too, if the operator can't
	}
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("read Publication %s: %w", request.Name, err)
	}
	sources, unreadable, found, reading := r.read(publication)
	if reading {
		return reconcile.Result{}, nil // it is reconciled again when the sources are read
	}
	fields, err := published.CompileFields(r.compiler, publication.Spec.Fields)
	if err != nil {
		found.problems = append(found.problems, *invalid("%v", err))
	}
	found.fields, found.valid = fields, err == nil
	objects, problems := choose(sources, len(publication.Spec.Fields) > 0)
	found.objects, found.problems = objects, append(found.problems, problems...)
	if err := r.write(ctx, publication, &found, unreadable); err != nil {
		return reconcile.Result{}, err
	}
	return reconcile.Result{RequeueAfter: found.again()}, r.report(ctx, publication, &found)
}

// read returns what the sources of a publication select, and which of them can't be read. Reading is true if some are about to be
// read for the first time.
func (r *reconciler) read(publication *v1alpha1.Publication) (sources []readSource, unreadable []selection, found outcome, reading bool) {
	wanted := make([]selection, len(publication.Spec.Sources))
	var watched []selection
	for i := range publication.Spec.Sources {
		selected, problem := find(r.mapper, i, &publication.Spec.Sources[i])
		if problem != nil {
			found.problems = append(found.problems, *problem)
			if !problem.gone() {
				unreadable = append(unreadable, asWritten(&publication.Spec.Sources[i]))
			}
			continue
		}
		wanted[i] = selected
		watched = append(watched, selected)
	}
	started := r.watches.use(publication.Name, watched)
	for i, selected := range wanted {
		w := started[selected]
		if w == nil {
			continue
		}
		entries, read, err := w.get()
		if err != nil {
			problem := unavailable(i, selected, err)
			found.problems = append(found.problems, *problem)
			if !problem.gone() {
				unreadable = append(unreadable, selected)
			}
			continue
		}
		reading = reading || !read
		sources = append(sources, readSource{selection: selected, entries: entries})
	}
	return sources, unreadable, found, reading
}

// again returns when to look again for what no watch reports, or 0.
func (o *outcome) again() time.Duration {
	again := time.Duration(0)
	for _, p := range o.problems {
		switch p.reason {
		case v1alpha1.ReasonUnknownKind, v1alpha1.ReasonSourceUnavailable:
			return retry
		case v1alpha1.ReasonTooManyObjects:
			again = slowRetry
		}
	}
	return again
}

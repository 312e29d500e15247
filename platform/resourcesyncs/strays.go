// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcesyncs

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/syncer/declaration"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// A controller of the host connects to the Services that host objects name. While a space syncs such objects, its syncer takes those away
// whose Service is about to lead out of the space. Objects of a sync that the space doesn't have any more are strays: they are deleted when
// the sync ends, and in any case before a Service of the space leads out.

// straysPerList is how many objects are read at once.
const straysPerList = 500

// errStrays means that objects are still on the host.
var errStrays = errors.New("a controller of the host has not released it yet")

// namesServices reports whether objects of a ResourceSync name Services. Its API keeps that as it is while the ResourceSync exists.
func namesServices(sync *v1alpha1.ResourceSync) bool {
	return slices.ContainsFunc(sync.Spec.Fields, func(f v1alpha1.SyncedField) bool {
		return f.Type == v1alpha1.FieldObject && f.Resource == resources.Services
	})
}

// follows changes the syncs, and notes which of them may have objects on the host: those of the first list, and those that this process has
// begun. When they are deleted, the host's garbage collector deletes their objects later. The caller holds mu.
func (s *Syncs) follows(change func()) {
	change()
	if s.listed[listOfSyncs] {
		return
	}
	for name, sync := range s.syncs {
		if namesServices(sync) {
			s.begun[name] = true
		}
	}
}

// Withdraw deletes the objects of a space on the host that name Services, of all syncs except those of these names, with which the space runs.
// It returns an error unless they are gone. It is safe for concurrent use.
func (s *Syncs) Withdraw(ctx context.Context, space string, runs []string) error {
	s.mu.Lock()
	known, names := s.listed[listOfSyncs], maps.Clone(s.begun)
	s.mu.Unlock()
	if !known {
		return errors.New("the ResourceSyncs of the host are not known yet")
	}
	for _, name := range runs {
		delete(names, name)
	}
	ctx, cancel := context.WithTimeout(ctx, checkTimeout) // a host that doesn't answer must not keep the syncer's workers
	defer cancel()
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if err := s.remove(ctx, name, translate.Space{Name: space}.HostNamespace(), func(of string) bool { return of == space }); err != nil {
			return err
		}
	}
	return nil
}

// remove deletes the objects of a sync, in a namespace or in all, of the spaces that are strays. It returns an error unless they are gone.
func (s *Syncs) remove(ctx context.Context, name, namespace string, stray func(space string) bool) error {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := s.host.Get(ctx, client.ObjectKey{Name: name}, crd); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil // without the definition, there are no objects
		}
		return fmt.Errorf("read the definition of %s: %w", name, err)
	}
	served := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Served })
	if served < 0 {
		return nil
	}
	objects := s.objects.Resource(schema.GroupVersionResource{Group: crd.Spec.Group, Version: crd.Spec.Versions[served].Name, Resource: crd.Spec.Names.Plural})
	var errs []error
	o := metav1.ListOptions{LabelSelector: translate.LabelSpace, Limit: straysPerList}
	for {
		all, err := objects.Namespace(namespace).List(ctx, o)
		if err != nil {
			return errors.Join(append(errs, fmt.Errorf("list %s: %w", name, err))...)
		}
		for i := range all.Items {
			object := &all.Items[i]
			id, ours := translate.IdentityOf(object)
			if !ours || object.Namespace != (translate.Space{Name: id.Space}).HostNamespace() || !stray(id.Space) {
				continue
			}
			err := objects.Namespace(object.Namespace).Delete(ctx, object.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &object.UID}})
			if err == nil && len(object.Finalizers) > 0 || apierrors.IsConflict(err) { // or there is another one now
				err = errStrays
			}
			if err := client.IgnoreNotFound(err); err != nil {
				errs = append(errs, fmt.Errorf("delete %s %s/%s: %w", name, object.Namespace, object.Name, err))
			}
		}
		if o.Continue = all.Continue; o.Continue == "" {
			return errors.Join(errs...)
		}
	}
}

// strays returns the spaces that are known not to have a sync, or no more.
func (s *Syncs) strays(name string) map[string]bool {
	s.mu.Lock()
	all := slices.Collect(maps.Keys(s.spaces))
	s.mu.Unlock()
	unknown := map[string]bool{}
	for _, space := range all { // without the lock: these may take others
		_, known := s.options.ForcedIn(space, name)
		unknown[space] = !known
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	without := map[string]bool{}
	state := s.states[name]
	if state == nil || state.problem.passing || state.inForce == nil && state.checked != nil {
		return without // it is not known yet, or is about to begin
	}
	for _, space := range all {
		is := s.spaces[space]
		if is == nil || unknown[space] {
			continue
		}
		if !slices.ContainsFunc(is.has, func(d *declaration.Declaration) bool { return d.Name == name }) {
			without[space] = true
		}
	}
	return without
}

// cleaned are the spaces without a sync whose strays were deleted.
type cleaned struct {
	spaces map[string]bool
	// again is when to look once more, until nothing was there twice: a space creates objects until it takes up that the sync has ended.
	again time.Time
	empty bool // nothing was there the last time
}

// removeStrays deletes the strays of the syncs whose spaces have changed. It returns when it has to be called again, 0 if it need not.
func (s *Syncs) removeStrays(ctx context.Context, now time.Time, syncs map[string]*v1alpha1.ResourceSync) (pause time.Duration) {
	s.mu.Lock()
	begun := maps.Clone(s.begun)
	s.mu.Unlock()
	for name := range begun {
		if syncs[name] == nil { // the host's garbage collector deletes them
			continue
		}
		without, was := s.strays(name), s.clean[name]
		same := maps.Equal(without, was.spaces)
		if same && (was.again.IsZero() || now.Before(was.again)) {
			if !was.again.IsZero() {
				pause = sooner(pause, was.again.Sub(now))
			}
			continue
		}
		limited, cancel := context.WithTimeout(ctx, checkTimeout)
		empty := true
		err := s.remove(limited, name, metav1.NamespaceAll, func(space string) bool {
			empty = empty && !without[space]
			return without[space]
		})
		cancel()
		switch {
		case err == nil && same && empty && was.empty:
			s.clean[name] = cleaned{spaces: without}
		case err == nil:
			next := retry
			if empty {
				next = recheck
			}
			s.clean[name] = cleaned{without, now.Add(next), empty}
			pause = sooner(pause, next)
		case ctx.Err() == nil:
			s.options.Logger.Error(err, "Could not delete objects of spaces whose sync has ended; Berth retries", "resourceSync", name)
			pause = sooner(pause, retry)
		}
	}
	return pause
}

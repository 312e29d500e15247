// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcesyncs

import (
	"context"
	"errors"
	"fmt"
	"slices"

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

// straysPerList is how many objects are read at once.
const straysPerList = 500

// namesServices reports whether objects of a ResourceSync name Services. Its API keeps that as it is while the ResourceSync exists.
func namesServices(sync *v1alpha1.ResourceSync) bool {
	return slices.ContainsFunc(sync.Spec.Fields, func(f v1alpha1.SyncedField) bool { return f.Resource == resources.Services })
}

// removeStrays deletes the objects on the host that name Services, of spaces whose sync has ended: a controller of the host would connect to
// these Services, and nothing checks any more where they lead. When the ResourceSync is deleted, the host's garbage collector deletes them.
// A space that still runs with the sync may create one again, which is deleted the next time.
func (s *Syncs) removeStrays(ctx context.Context, host client.Client, sync *v1alpha1.ResourceSync) error {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := host.Get(ctx, client.ObjectKey{Name: sync.Name}, crd); err != nil {
		return client.IgnoreNotFound(err) // without the definition, there are no objects
	}
	served := slices.IndexFunc(crd.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Served })
	if served < 0 {
		return nil
	}
	objects := s.objects.Resource(schema.GroupVersionResource{Group: crd.Spec.Group, Version: crd.Spec.Versions[served].Name, Resource: crd.Spec.Names.Plural})
	var errs []error
	o := metav1.ListOptions{LabelSelector: translate.LabelSpace, Limit: straysPerList}
	for {
		all, err := objects.List(ctx, o)
		if err != nil {
			return errors.Join(append(errs, fmt.Errorf("list %s: %w", sync.Name, err))...)
		}
		for i := range all.Items {
			stray := &all.Items[i]
			space := stray.Labels[translate.LabelSpace]
			if stray.Namespace != (translate.Space{Name: space}).HostNamespace() || stray.DeletionTimestamp != nil || !s.ended(sync.Name, space) {
				continue
			}
			err := objects.Namespace(stray.Namespace).Delete(ctx, stray.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &stray.UID}})
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
				errs = append(errs, fmt.Errorf("delete %s %s/%s: %w", sync.Name, stray.Namespace, stray.Name, err))
			}
		}
		if o.Continue = all.Continue; o.Continue == "" {
			return errors.Join(errs...)
		}
	}
}

// ended reports whether a space doesn't have a sync, or no more. Of a space or a state that isn't known yet, nothing has ended.
func (s *Syncs) ended(name, space string) bool {
	_, known := s.options.ForcedIn(space, name)
	dedicated := s.options.Dedicated(space)
	s.mu.Lock()
	defer s.mu.Unlock()
	is, state := s.spaces[space], s.states[name]
	if is == nil || state == nil || state.problem.passing || !known {
		return false
	}
	if state.inForce == nil && state.checked != nil {
		return false // it is about to begin
	}
	return dedicated || !slices.ContainsFunc(is.has, func(d *declaration.Declaration) bool { return d.Name == name })
}

// removeAllStrays removes the strays of the syncs that were checked, and of all if spaces have others. It reports whether some could not be
// deleted, which is done again the next time.
func (s *Syncs) removeAllStrays(ctx context.Context, host client.Client, syncs map[string]*v1alpha1.ResourceSync, before, states map[string]*state, all bool) (failed bool) {
	left := map[string]bool{}
	for name, is := range states {
		sync, was := syncs[name], before[name]
		if !namesServices(sync) || !all && !s.strays[name] && was != nil && was.next.Equal(is.next) {
			continue
		}
		limited, cancel := context.WithTimeout(ctx, checkTimeout)
		err := s.removeStrays(limited, host, sync)
		cancel()
		if err != nil && ctx.Err() == nil {
			s.options.Logger.Error(err, "Could not delete objects of spaces whose sync has ended; Berth retries", "resourceSync", name)
			left[name] = true
		}
	}
	s.strays = left
	return len(left) > 0
}

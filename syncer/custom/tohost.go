// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package custom

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/cache"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/syncer/declaration"
	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/syncer/services"
)

// Declare declares to an engine what is synced of its space. The platform gives the space the definitions of all of them, and the host's
// watches have synced.
func Declare(e *engine.Engine, services *services.Syncer, all []*declaration.Declaration) error {
	s := &syncer{Engine: e, services: services, imported: map[string]bool{}}
	for _, d := range all {
		s.imported[d.Name] = d.FromHost
	}
	for _, d := range all {
		if d.FromHost {
			if err := s.show(d); err != nil {
				return err
			}
			continue
		}
		if err := s.toHost(d); err != nil {
			return err
		}
	}
	s.deleteLeftovers()
	return nil
}

// syncer syncs the custom resources of one space.
type syncer struct {
	*engine.Engine
	services *services.Syncer
	imported map[string]bool // names of declarations: whether the space shows objects of the host
	sent     []sent
}

// sent are the objects of a declaration in the space.
type sent struct {
	*declaration.Declaration
	virtual cache.SharedIndexInformer
}

// imports implements [declaration.Imports].
func (s *syncer) imports(sync, name string) bool {
	if !s.imported[sync] {
		return false
	}
	_, ok := hostcache.Get[*unstructured.Unstructured](s.Host, sync, "", name)
	return ok
}

// toHost declares a resource whose objects tenants create.
func (s *syncer) toHost(d *declaration.Declaration) error {
	informer, err := s.FromDeclared(d)
	if err != nil {
		return err
	}
	if err := s.index(d, informer); err != nil {
		return err
	}
	s.sent = append(s.sent, sent{d, informer})
	var replaced sync.Map // names of host objects: the names of Secrets that they named before an update
	var returned sync.Map // UIDs of host objects: the versions of which the Secrets were read
	k := &engine.Resource[*unstructured.Unstructured]{
		Engine: s.Engine, Name: d.Name, NameLimit: declaration.NameLimit, Virtual: informer,
		New:   d.New,
		Bound: engine.AtMost(d.Max, d.GVR.Resource+" on the host"),
		// Before all objects of the space are known, another one may name the same Secret.
		IsUsed: func(types.NamespacedName) (bool, error) { return true, s.unsettled() },
		ToHost: func(ctx context.Context, v *unstructured.Unstructured) (*unstructured.Unstructured, bool, error) {
			host, errs := d.ToHost(ctx, s.Space, v, s.imports)
			if len(errs) == 0 {
				errs = s.wayOut(d, v)
			}
			return host, true, engine.Forbid(errs)
		},
		UpdateHost: func(want, have *unstructured.Unstructured) bool {
			before := d.Names(v1alpha1.FieldReturnedSecret, have)
			changed := d.Update(want, have)
			if after := d.Names(v1alpha1.FieldReturnedSecret, have); !slices.Equal(before, after) {
				if earlier, ok := replaced.Load(have.GetName()); ok {
					before = append(before, earlier.([]string)...)
				}
				replaced.Store(have.GetName(), before)
			}
			return changed
		},
		UpdateSubresources: func(ctx context.Context, _, _, host *unstructured.Unstructured) (*unstructured.Unstructured, error) {
			before, ok := replaced.Load(host.GetName())
			if !ok {
				return host, nil
			}
			if err := s.deleteReturned(ctx, before.([]string)); err != nil {
				return host, err
			}
			replaced.Delete(host.GetName())
			return host, nil
		},
		AfterDelete: func(ctx context.Context, host *unstructured.Unstructured) error {
			returned.Delete(host.GetUID())
			return s.deleteReturned(ctx, d.Names(v1alpha1.FieldReturnedSecret, host))
		},
		SyncStatus: func(ctx context.Context, v, host *unstructured.Unstructured) (time.Duration, error) {
			out := false
			s.Compute(ctx, func() { out = len(s.wayOut(d, v)) > 0 })
			if out { // changed after ToHost was called
				return 0, s.services.Withdraw(ctx, host) // its deletion triggers another sync, which reports the reason
			}
			var err error
			if out, changed := d.Status(s.Space, v, host); changed {
				err = s.VirtualAPI.Status().Update(ctx, out)
			}
			// A tenant may change its object as often as it wants, and must not have the host read each time.
			version := host.GetResourceVersion()
			if read, ok := returned.Load(host.GetUID()); ok && read == version || len(d.Names(v1alpha1.FieldReturnedSecret, v)) == 0 {
				return 0, err
			}
			if failed := s.returnSecrets(ctx, d, v); failed != nil {
				return 0, errors.Join(err, failed)
			}
			returned.Store(host.GetUID(), version)
			return 0, err
		},
	}
	engine.Add(k, nil)
	if d.NamesServices {
		k.DeleteForbidden = true
		s.services.Guard(k, d.Services, d.New)
	}
	return nil
}

// wayOut rejects Services by which a controller of the host would connect to something outside of the space.
func (s *syncer) wayOut(d *declaration.Declaration, v *unstructured.Unstructured) (errs field.ErrorList) {
	for _, name := range d.Services(v) {
		if s.services.LeadsOut(types.NamespacedName{Namespace: v.GetNamespace(), Name: name}) {
			errs = append(errs, field.Forbidden(field.NewPath("spec"), fmt.Sprintf("it names the Service %q: %s", name, services.LeadsOutReason)))
		}
	}
	return errs
}

// unsettled returns [engine.ErrUnsettled] until the space's objects of all declarations are known.
func (s *syncer) unsettled() error {
	for _, sent := range s.sent {
		if !s.Settled(sent.Name) {
			return engine.ErrUnsettled
		}
	}
	return nil
}

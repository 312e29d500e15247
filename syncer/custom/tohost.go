// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package custom

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/syncer/declaration"
	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/syncer/hostcache"
)

// Declare declares to an engine what is synced of its space. The platform gives the space the definitions of all of them, and the host's
// watches have synced. leadsOut reports whether a Service could lead out of the space.
func Declare(e *engine.Engine, all []*declaration.Declaration, leadsOut func(service types.NamespacedName) bool) error {
	s := &syncer{Engine: e, imported: map[string]bool{}, leadsOut: leadsOut}
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
	return nil
}

// syncer syncs the custom resources of one space.
type syncer struct {
	*engine.Engine
	imported map[string]bool // names of declarations: whether the space shows objects of the host
	sent     []sent
	leadsOut func(service types.NamespacedName) bool
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
	if err := s.indexReturns(d, informer); err != nil {
		return err
	}
	s.sent = append(s.sent, sent{d, informer})
	var replaced sync.Map // names of host objects: the names of Secrets that they named before an update
	k := &engine.Resource[*unstructured.Unstructured]{
		Engine: s.Engine, Name: d.Name, NameLimit: declaration.NameLimit, Virtual: informer, Outlives: true,
		New:   d.New,
		Bound: engine.AtMost(d.Max, d.GVR.Resource+" on the host"),
		ToHost: func(ctx context.Context, v *unstructured.Unstructured) (*unstructured.Unstructured, bool, error) {
			host, errs := d.ToHost(ctx, s.Space, v, s.imports)
			return host, true, engine.Forbid(append(errs, s.wayOut(d, v)...))
		},
		UpdateHost: func(want, have *unstructured.Unstructured) bool {
			before := d.Names(v1alpha1.FieldReturnedSecret, have)
			changed := declaration.Update(want, have)
			if after := d.Names(v1alpha1.FieldReturnedSecret, have); !slices.Equal(before, after) {
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
			return s.deleteReturned(ctx, d.Names(v1alpha1.FieldReturnedSecret, host))
		},
		SyncStatus: func(ctx context.Context, v, host *unstructured.Unstructured) (time.Duration, error) {
			if len(s.wayOut(d, v)) > 0 { // changed after ToHost was called
				return 0, s.withdraw(ctx, host) // its deletion triggers another sync, which reports the reason
			}
			var err error
			if out, changed := d.Status(s.Space, v, host); changed {
				err = s.VirtualAPI.Status().Update(ctx, out)
			}
			return 0, errors.Join(err, s.returnSecrets(ctx, d, v))
		},
	}
	k.DeleteForbidden = d.Has(v1alpha1.FieldService) // as with routes: what leads out must not stay
	engine.Add(k, nil)
	if d.Has(v1alpha1.FieldService) {
		return s.followServices(d, informer)
	}
	return nil
}

// wayOut refuses Services by which a controller of the host would send requests out of the space.
func (s *syncer) wayOut(d *declaration.Declaration, v *unstructured.Unstructured) (errs field.ErrorList) {
	for _, name := range d.Names(v1alpha1.FieldService, v) {
		if s.leadsOut(types.NamespacedName{Namespace: v.GetNamespace(), Name: name}) {
			errs = append(errs, field.Forbidden(field.NewPath("spec").Key(name),
				"the Service has type ExternalName or no selector, so it could lead to endpoints outside of the space; use a Service that selects pods"))
		}
	}
	return errs
}

func (s *syncer) withdraw(ctx context.Context, host *unstructured.Unstructured) error {
	uid := host.GetUID()
	return client.IgnoreNotFound(s.HostAPI.Delete(ctx, host, client.Preconditions{UID: &uid}))
}

// indexServices is the index of a space's objects by the Services that they name, as namespace/name.
const indexServices = "berth.dev/services"

// followServices enqueues objects when a Service changes that they name.
func (s *syncer) followServices(d *declaration.Declaration, informer cache.SharedIndexInformer) error {
	err := informer.AddIndexers(cache.Indexers{indexServices: func(obj any) (keys []string, _ error) {
		if v, ok := obj.(*unstructured.Unstructured); ok {
			for _, name := range d.Names(v1alpha1.FieldService, v) {
				keys = append(keys, v.GetNamespace()+"/"+name)
			}
		}
		return keys, nil
	}})
	s.FromSpace(s.Informers.Core().V1().Services().Informer(), func(service client.Object, enqueue func(engine.Key)) {
		keys, err := informer.GetIndexer().IndexKeys(indexServices, client.ObjectKeyFromObject(service).String())
		if err != nil {
			return // there is no such index, which can't happen
		}
		for _, key := range keys {
			if name, err := cache.ParseObjectName(key); err == nil {
				enqueue(engine.Key{Resource: d.Name, NamespacedName: types.NamespacedName(name)})
			}
		}
	})
	return err
}

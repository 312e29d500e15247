// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package classes

import (
	"context"
	"fmt"
	"time"

	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"

	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// Syncer syncs classes: the host's to the space, and the tenant's to the host.
type Syncer struct{ *engine.Engine }

// New returns the syncer of the classes of an engine's space.
func New(e *engine.Engine) *Syncer { return &Syncer{e} }

// Declarations returns the functions that declare this package's resources to the engine.
func (s *Syncer) Declarations() map[string]func() error {
	return map[string]func() error{
		resources.StorageClasses: s.syncStorageClasses, resources.IngressClasses: s.syncIngressClasses,
		resources.RuntimeClasses: s.syncRuntimeClasses, resources.PriorityClasses: s.syncPriorityClasses,
		resources.SnapshotClasses: s.syncSnapshotClasses, resources.GatewayClasses: s.syncGatewayClasses,
		resources.ExportedPriorityClasses: s.syncExportedPriorityClasses, resources.ExportedStorageClasses: s.syncExportedStorageClasses,
	}
}

// importedClass describes a class resource of which spaces import the host's objects, with the same names.
type importedClass[T client.Object] struct {
	*engine.Engine
	name    string // plural, as in URLs
	virtual cache.SharedIndexInformer
	// imports, if set, reports whether the space imports a class among those that the sync options select.
	imports func(host T) bool
	// toVirtual returns the space's copy of a class of the host.
	toVirtual func(host T) T
	// update copies to have what the host owns. It reports whether something differed, and whether the object must be
	// recreated for it.
	update func(want, have T) (changed, recreate bool)
	// updateStatus, if set, copies the status of the host's class to have, and reports whether it differed.
	updateStatus func(host, have T) bool
}

// importClasses imports the classes that the admin selected. It replaces a tenant's class of the same name, because
// objects that name this class refer to the host's.
func importClasses[T client.Object](c *importedClass[T]) error {
	c.Work[c.name] = c.reconcile
	byName := func(obj client.Object, enqueue func(engine.Key)) {
		enqueue(engine.Key{Resource: c.name, NamespacedName: types.NamespacedName{Name: obj.GetName()}})
	}
	c.FromSpace(c.virtual, byName)
	c.FromHost(c.name, byName)
	return nil
}

func (c *importedClass[T]) reconcile(ctx context.Context, key types.NamespacedName) (time.Duration, error) {
	if !c.Settled(c.name) {
		return 0, engine.ErrUnsettled // its definition may not be served yet
	}
	host, hosted := hostcache.Imported[T](c.Host, c.Sync, c.name, key.Name)
	hosted = hosted && (c.imports == nil || c.imports(host))
	v, exists := engine.Stored[T](c.virtual, types.NamespacedName{Name: key.Name})
	switch {
	case !hosted && exists && v.GetLabels()[translate.LabelManagedBy] == translate.ManagedBy:
		return 0, c.remove(ctx, v)
	case !hosted:
		return 0, nil
	case !exists:
		err := c.VirtualAPI.Create(ctx, c.toVirtual(host))
		if apierrors.IsAlreadyExists(err) {
			err = nil // the watch will deliver it
		}
		return 0, err
	}
	have := v.DeepCopyObject().(T)
	changed, recreate := c.update(c.toVirtual(host), have)
	switch {
	case recreate:
		return 0, c.remove(ctx, v)
	case changed:
		return 0, c.VirtualAPI.Update(ctx, have)
	case c.updateStatus != nil && c.updateStatus(host, have):
		return 0, c.VirtualAPI.Status().Update(ctx, have)
	default:
		return 0, nil
	}
}

func (c *importedClass[T]) remove(ctx context.Context, v T) error {
	uid := v.GetUID()
	return c.VirtualAPI.Delete(ctx, v, client.Preconditions{UID: &uid})
}

// Served reports whether the host serves objects of a class. A tenant's own class is served by a controller that the
// tenant runs.
func Served[T client.Object](e *engine.Engine, resource string, virtual cache.SharedIndexInformer, name string, path *field.Path) (bool, field.ErrorList) {
	if _, ok := hostcache.Imported[T](e.Host, e.Sync, resource, name); ok {
		return true, nil
	}
	own, exists := engine.Stored[T](virtual, types.NamespacedName{Name: name})
	if exists && own.GetLabels()[translate.LabelManagedBy] != translate.ManagedBy {
		return false, nil
	}
	return false, field.ErrorList{field.Forbidden(path, fmt.Sprintf("class %q does not exist, or the host does not offer it to spaces; see 'kubectl get %s'", name, resource))}
}

func (s *Syncer) syncStorageClasses() error {
	return importClasses(&importedClass[*storagev1.StorageClass]{
		Engine: s.Engine, name: resources.StorageClasses, virtual: s.Informers.Storage().V1().StorageClasses().Informer(),
		toVirtual: translate.StorageClass, update: translate.PullStorageClass,
	})
}

func (s *Syncer) syncIngressClasses() error {
	return importClasses(&importedClass[*networkingv1.IngressClass]{
		Engine: s.Engine, name: resources.IngressClasses, virtual: s.Informers.Networking().V1().IngressClasses().Informer(),
		toVirtual: translate.IngressClass, update: translate.PullIngressClass,
	})
}

func (s *Syncer) syncRuntimeClasses() error {
	return importClasses(&importedClass[*nodev1.RuntimeClass]{
		Engine: s.Engine, name: resources.RuntimeClasses, virtual: s.Informers.Node().V1().RuntimeClasses().Informer(),
		toVirtual: translate.RuntimeClass, update: translate.PullRuntimeClass,
	})
}

func (s *Syncer) syncPriorityClasses() error {
	return importClasses(&importedClass[*schedulingv1.PriorityClass]{
		Engine: s.Engine, name: resources.PriorityClasses, virtual: s.Informers.Scheduling().V1().PriorityClasses().Informer(),
		imports: s.Space.Settings.Priorities.Imports, toVirtual: translate.PriorityClass, update: translate.PullPriorityClass,
	})
}

func (s *Syncer) syncGatewayClasses() error {
	informer, err := s.FromExtension(resources.GatewayClasses)
	if err != nil {
		return err
	}
	return importClasses(&importedClass[*gatewayv1.GatewayClass]{
		Engine: s.Engine, name: resources.GatewayClasses, virtual: informer,
		toVirtual: translate.GatewayClass, update: translate.PullGatewayClass, updateStatus: translate.PullGatewayClassStatus,
	})
}

func (s *Syncer) syncSnapshotClasses() error {
	informer, err := s.FromExtension(resources.SnapshotClasses)
	if err != nil {
		return err
	}
	return importClasses(&importedClass[*snapshotv1.VolumeSnapshotClass]{
		Engine: s.Engine, name: resources.SnapshotClasses, virtual: informer, toVirtual: translate.SnapshotClass, update: translate.PullSnapshotClass,
	})
}

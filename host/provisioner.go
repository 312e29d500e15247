// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"errors"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	storagehelpers "k8s.io/component-helpers/storage/volume"
	"k8s.io/klog/v2"
)

// provisioner makes volumes for claims of classes that name it, and deletes
// them when released. The PV controller binds them.
//
// sig-storage-lib-external-provisioner lets a provisioner name its volumes, but
// does not serve here: it ends the process on some errors, takes a volume of
// the same name for the claim's own whosever it is, keeps working after its
// context has ended, and retries after 15 seconds at the soonest.
type provisioner struct {
	client  kubernetes.Interface
	nodes   []node
	events  record.EventRecorder
	queue   workqueue.TypedRateLimitingInterface[volumeWork]
	claims  corelisters.PersistentVolumeClaimLister
	volumes corelisters.PersistentVolumeLister
	classes storagelisters.StorageClassLister
}

// volumeWork names a claim, or, without a namespace, a volume.
type volumeWork struct{ namespace, name string }

// runProvisioner creates the default storage class and runs a provisioner that
// puts volumes on nodes, until ctx ends. It calls ready when claims are served,
// and returns when its goroutines have ended.
func runProvisioner(ctx context.Context, config *rest.Config, nodes []node, ready func()) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client of provisioner: %w", err)
	}
	_, err = client.StorageV1().StorageClasses().Create(ctx, storageClass(), metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create storage class %s: %w", storageClassName, err)
	}

	factory := newFactory(client, 0, nil)
	defer factory.Shutdown()
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	defer broadcaster.Shutdown()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	p := &provisioner{
		client:  client,
		nodes:   nodes,
		events:  broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: provisionerName}),
		queue:   workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[volumeWork]()),
		claims:  factory.Core().V1().PersistentVolumeClaims().Lister(),
		volumes: factory.Core().V1().PersistentVolumes().Lister(),
		classes: factory.Storage().V1().StorageClasses().Lister(),
	}
	var group sync.WaitGroup
	defer group.Wait()
	defer p.queue.ShutDown()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	for _, informer := range []cache.SharedIndexInformer{
		factory.Core().V1().PersistentVolumeClaims().Informer(),
		factory.Core().V1().PersistentVolumes().Informer(),
	} {
		if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc:    p.enqueue,
			UpdateFunc: func(_, obj any) { p.enqueue(obj) },
		}); err != nil {
			return fmt.Errorf("watch claims and volumes: %w", err)
		}
	}
	factory.Start(ctx.Done())
	factory.WaitForCacheSync(ctx.Done())
	if ctx.Err() != nil {
		return fmt.Errorf("sync informers of provisioner: %w", ctx.Err())
	}
	group.Go(func() { p.work(ctx) })
	ready()
	<-ctx.Done()
	return nil
}

func (p *provisioner) enqueue(obj any) {
	object := obj.(metav1.Object)
	p.queue.Add(volumeWork{object.GetNamespace(), object.GetName()})
}

func (p *provisioner) work(ctx context.Context) {
	for {
		item, shutdown := p.queue.Get()
		if shutdown {
			return
		}
		var err error
		if item.namespace == "" {
			err = p.reclaim(ctx, item.name)
		} else {
			err = p.provision(ctx, item.namespace, item.name)
		}
		if err == nil || ctx.Err() != nil {
			p.queue.Forget(item)
		} else {
			klog.FromContext(ctx).Error(err, "Simulate volumes, will retry")
			p.queue.AddRateLimited(item)
		}
		p.queue.Done(item)
	}
}

// provision creates a volume for the claim if that is for this provisioner to do.
func (p *provisioner) provision(ctx context.Context, namespace, name string) error {
	claim, err := p.claims.PersistentVolumeClaims(namespace).Get(name)
	if err != nil {
		return nil // the one error is that the claim is gone
	}
	// The annotation says that the PV controller found no volume that fits.
	if claim.Annotations[storagehelpers.AnnStorageProvisioner] != provisionerName ||
		claim.Spec.VolumeName != "" || claim.DeletionTimestamp != nil {
		return nil
	}
	class, err := p.classes.Get(storagehelpers.GetPersistentVolumeClaimClass(claim))
	if err != nil {
		return fmt.Errorf("get storage class of claim %s/%s: %w", namespace, name, err)
	}
	nodeName := volumeNode(claim, class, p.nodes)
	if nodeName == "" || class.Provisioner != provisionerName {
		return nil
	}
	if claim.Spec.DataSource != nil || claim.Spec.DataSourceRef != nil {
		p.events.Event(claim, corev1.EventTypeWarning, "ProvisioningFailed",
			"simulated volumes hold no data and can't be made from a data source")
		return nil
	}
	return p.create(ctx, claim, newVolume(claim, class, nodeName))
}

func (p *provisioner) create(ctx context.Context, claim *corev1.PersistentVolumeClaim, volume *corev1.PersistentVolume) error {
	_, err := p.client.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		existing, getErr := p.client.CoreV1().PersistentVolumes().Get(ctx, volume.Name, metav1.GetOptions{})
		if getErr != nil {
			return errors.Join(err, getErr)
		}
		if ref := existing.Spec.ClaimRef; ref != nil && ref.UID == claim.UID {
			return nil // it is the claim's; the claim has yet to be bound
		}
	}
	if err != nil {
		err = fmt.Errorf("create volume %s for claim %s/%s: %w", volume.Name, claim.Namespace, claim.Name, err)
		p.events.Event(claim, corev1.EventTypeWarning, "ProvisioningFailed", err.Error())
		return err
	}
	p.events.Eventf(claim, corev1.EventTypeNormal, "ProvisioningSucceeded", "Successfully provisioned volume %s", volume.Name)
	return nil
}

// reclaim deletes the volume if it has been released.
func (p *provisioner) reclaim(ctx context.Context, name string) error {
	volume, err := p.volumes.Get(name)
	if err != nil || !isReleased(volume) {
		return nil // the one error is that the volume is gone
	}
	err = p.client.CoreV1().PersistentVolumes().Delete(ctx, name, *metav1.NewPreconditionDeleteOptions(string(volume.UID)))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete released volume %s: %w", name, err)
	}
	return nil
}

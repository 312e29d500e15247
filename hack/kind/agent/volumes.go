// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	corelisters "k8s.io/client-go/listers/core/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	storagehelpers "k8s.io/component-helpers/storage/volume"
)

const provisionerName = "kind.berth.dev/directory"

// provisioner gives each claim whose pod goes to this node a directory of the node, and removes it with the volume.
type provisioner struct {
	client  kubernetes.Interface
	claims  corelisters.PersistentVolumeClaimLister
	volumes corelisters.PersistentVolumeLister
	classes storagelisters.StorageClassLister
	node    string
	root    string
}

func newProvisioner(factory informers.SharedInformerFactory, client kubernetes.Interface, node, root string) part {
	core := factory.Core().V1()
	v := &provisioner{
		client:  client,
		claims:  core.PersistentVolumeClaims().Lister(),
		volumes: core.PersistentVolumes().Lister(),
		classes: factory.Storage().V1().StorageClasses().Lister(),
		node:    node,
		root:    root,
	}
	p := newPart("volumes", v.sync)
	watch(p, core.PersistentVolumeClaims().Informer())
	watch(p, core.PersistentVolumes().Informer())
	watch(p, factory.Storage().V1().StorageClasses().Informer())
	return p
}

func (v *provisioner) sync(ctx context.Context) error {
	claims, err := v.claims.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list claims: %w", err)
	}
	for _, claim := range claims {
		if err := v.provision(ctx, claim); err != nil {
			return err
		}
	}
	volumes, err := v.volumes.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list volumes: %w", err)
	}
	for _, volume := range volumes {
		if err := v.reclaim(ctx, volume); err != nil {
			return err
		}
	}
	return nil
}

// provision answers the request of the volume controller, once the scheduler has chosen this node.
func (v *provisioner) provision(ctx context.Context, claim *corev1.PersistentVolumeClaim) error {
	if claim.Annotations[storagehelpers.AnnStorageProvisioner] != provisionerName ||
		claim.Annotations[storagehelpers.AnnSelectedNode] != v.node ||
		claim.Spec.VolumeName != "" || claim.DeletionTimestamp != nil {
		return nil
	}
	class, err := v.classes.Get(storagehelpers.GetPersistentVolumeClaimClass(claim))
	if err != nil {
		return nil // the one error is that there is no such class yet
	}
	name := "pvc-" + string(claim.UID)
	directory := filepath.Join(v.root, name)
	if err := os.MkdirAll(directory, 0o750); err != nil {
		return fmt.Errorf("make volume: %w", err)
	}
	// Whichever user a container runs as.
	if err := os.Chmod(directory, 0o777); err != nil {
		return fmt.Errorf("make volume: %w", err)
	}
	volume := &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{
			storagehelpers.AnnDynamicallyProvisioned: provisionerName,
		}},
		Spec: corev1.PersistentVolumeSpec{
			PersistentVolumeReclaimPolicy: *class.ReclaimPolicy,
			StorageClassName:              class.Name,
			AccessModes:                   claim.Spec.AccessModes,
			Capacity:                      corev1.ResourceList{corev1.ResourceStorage: claim.Spec.Resources.Requests[corev1.ResourceStorage]},
			ClaimRef: &corev1.ObjectReference{
				APIVersion: "v1", Kind: "PersistentVolumeClaim",
				Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID,
			},
			PersistentVolumeSource: corev1.PersistentVolumeSource{
				HostPath: &corev1.HostPathVolumeSource{Path: directory},
			},
			NodeAffinity: &corev1.VolumeNodeAffinity{Required: &corev1.NodeSelector{
				NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{
					Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{v.node},
				}}}},
			}},
		},
	}
	_, err = v.client.CoreV1().PersistentVolumes().Create(ctx, volume, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("create volume of claim %s/%s: %w", claim.Namespace, claim.Name, err)
	}
	return nil
}

func (v *provisioner) reclaim(ctx context.Context, volume *corev1.PersistentVolume) error {
	source := volume.Spec.HostPath
	if volume.Annotations[storagehelpers.AnnDynamicallyProvisioned] != provisionerName ||
		volume.Status.Phase != corev1.VolumeReleased || volume.DeletionTimestamp != nil ||
		volume.Spec.PersistentVolumeReclaimPolicy != corev1.PersistentVolumeReclaimDelete ||
		source == nil || source.Path != filepath.Join(v.root, volume.Name) {
		return nil
	}
	if !v.isHere(volume) {
		return nil
	}
	if err := os.RemoveAll(source.Path); err != nil {
		return fmt.Errorf("remove volume: %w", err)
	}
	err := v.client.CoreV1().PersistentVolumes().Delete(ctx, volume.Name, *metav1.NewPreconditionDeleteOptions(string(volume.UID)))
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete volume %s: %w", volume.Name, err)
	}
	return nil
}

// isHere reads back what provision wrote.
func (v *provisioner) isHere(volume *corev1.PersistentVolume) bool {
	affinity := volume.Spec.NodeAffinity
	if affinity == nil || affinity.Required == nil {
		return false
	}
	for _, term := range affinity.Required.NodeSelectorTerms {
		for _, requirement := range term.MatchExpressions {
			if requirement.Key == corev1.LabelHostname && len(requirement.Values) == 1 && requirement.Values[0] == v.node {
				return true
			}
		}
	}
	return false
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
)

// ForSpaces returns the controllers of a space: what works on a tenant's
// objects without nodes. Pods are run, and volumes bound, on the host.
func ForSpaces() []string {
	return []string{
		names.NamespaceController,
		names.ServiceAccountController,
		names.ServiceAccountTokenController,
		names.LegacyServiceAccountTokenCleanerController,
		names.RootCACertificatePublisherController,
		names.GarbageCollectorController,
		names.ClusterRoleAggregationController,
		names.ResourceQuotaController,
		names.DeploymentController,
		names.ReplicaSetController,
		names.ReplicationControllerController,
		names.StatefulSetController,
		names.JobController,
		names.CronJobController,
		names.TTLAfterFinishedController,
		names.DisruptionController,
		names.HorizontalPodAutoscalerController,
		names.EndpointsController,
		names.EndpointSliceController,
		names.EndpointSliceMirroringController,
		names.ServiceCIDRController,
		names.EphemeralVolumeController,
		// Admission puts finalizers on volumes, claims and classes that only these
		// take away.
		names.PersistentVolumeClaimProtectionController,
		names.PersistentVolumeProtectionController,
		names.VolumeAttributesClassProtectionController,
		names.ValidatingAdmissionPolicyStatusController,
		// Requests of clients, by the space's CA. Nobody approves any by itself: there are no kubelets.
		names.CertificateSigningRequestSigningController,
		names.CertificateSigningRequestCleanerController,
	}
}

// ForHosts returns the controllers of a cluster that has nodes of its
// own, with one that binds volumes and without those that need a cloud, or give
// nodes their addresses.
func ForHosts() []string {
	return append(ForSpaces(),
		names.DaemonSetController,
		names.NodeLifecycleController,
		names.TaintEvictionController,
		names.PodGarbageCollectorController,
		names.TTLController,
		names.PersistentVolumeBinderController,
		names.PersistentVolumeExpanderController,
		names.PersistentVolumeAttachDetachController,
		names.ResourceClaimController,
		names.CertificateSigningRequestApprovingController,
	)
}

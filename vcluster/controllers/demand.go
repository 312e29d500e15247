// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"bytes"
	"context"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	certificatesv1 "k8s.io/api/certificates/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	resourcev1 "k8s.io/api/resource/v1"
	storagev1 "k8s.io/api/storage/v1"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/kubernetes/pkg/controller/endpoint"
	"k8s.io/kubernetes/pkg/controller/servicecidrs"

	"github.com/berth-dev/berth/vcluster/informer"
	"github.com/berth-dev/berth/vcluster/registry"
	"github.com/berth-dev/berth/vcluster/stored"
)

// trigger is a set of stored objects.
type trigger struct {
	prefix string
	// match says which objects under the prefix belong to it; all if nil. It is
	// given what was stored and, of a deleted object, what was there before.
	match func(key string, value []byte) bool
}

// demand says when a controller is needed.
type demand struct {
	// writes wake the controller: any write of such an object.
	writes []trigger
	// needed tells, of a store at rest, whether the controller has something to
	// do, or may have later. If nil, it has while an object of writes exists.
	needed func(ctx context.Context, s *registry.Reader) (bool, error)
}

// demands returns what the controllers are needed for. A controller that is not
// listed always runs.
//
// A controller must be needed for as long as it has something to do later: a
// schedule, a deadline, a retry.
func demands(servingCA []byte) map[string]demand {
	var (
		deployments  = every(appsv1.SchemeGroupVersion, "deployments")
		replicaSets  = every(appsv1.SchemeGroupVersion, "replicasets")
		jobs         = every(batchv1.SchemeGroupVersion, "jobs")
		cronJobs     = every(batchv1.SchemeGroupVersion, "cronjobs")
		pods         = every(corev1.SchemeGroupVersion, "pods")
		services     = every(corev1.SchemeGroupVersion, "services").but("default/kubernetes")
		endpoints    = every(corev1.SchemeGroupVersion, "endpoints").but("default/kubernetes")
		claims       = every(corev1.SchemeGroupVersion, "persistentvolumeclaims")
		volumes      = every(corev1.SchemeGroupVersion, "persistentvolumes")
		namespaces   = every(corev1.SchemeGroupVersion, "namespaces")
		clusterRoles = every(rbacv1.SchemeGroupVersion, "clusterroles")
		requests     = every(certificatesv1.SchemeGroupVersion, "certificatesigningrequests")
		tokens       = every(corev1.SchemeGroupVersion, "secrets").that(contains(string(corev1.SecretTypeServiceAccountToken)))
	)
	return map[string]demand{
		// Whoever makes objects for others to work on wakes those, too: it saves
		// the wait for their start.
		names.DeploymentController:            on(deployments),
		names.ReplicaSetController:            on(replicaSets, deployments),
		names.ReplicationControllerController: on(every(corev1.SchemeGroupVersion, "replicationcontrollers")),
		names.DaemonSetController:             on(every(appsv1.SchemeGroupVersion, "daemonsets")),
		names.StatefulSetController:           on(every(appsv1.SchemeGroupVersion, "statefulsets")),
		// It takes its finalizer from the pods of jobs that have gone.
		names.JobController:                     on(jobs, cronJobs, pods.that(contains(batchv1.JobTrackingFinalizer))),
		names.CronJobController:                 on(cronJobs),
		names.TTLAfterFinishedController:        on(jobs),
		names.DisruptionController:              on(every(policyv1.SchemeGroupVersion, "poddisruptionbudgets")),
		names.HorizontalPodAutoscalerController: on(every(autoscalingv2.SchemeGroupVersion, "horizontalpodautoscalers")),

		// It deletes its own when their service has gone.
		names.EndpointsController:              on(services, endpoints.that(contains(endpoint.ControllerName))),
		names.EndpointSliceController:          on(services),
		names.EndpointSliceMirroringController: on(endpoints),
		// The range that every cluster has is made ready once.
		names.ServiceCIDRController: on(every(networkingv1.SchemeGroupVersion, "servicecidrs").that(unsettledRange)),

		names.EphemeralVolumeController:                 on(pods),
		names.ResourceClaimController:                   on(every(resourcev1.SchemeGroupVersion, "resourceclaimtemplates"), every(resourcev1.SchemeGroupVersion, "resourceclaims")),
		names.PersistentVolumeClaimProtectionController: on(claims),
		names.PersistentVolumeProtectionController:      on(volumes),
		names.VolumeAttributesClassProtectionController: on(every(storagev1.SchemeGroupVersion, "volumeattributesclasses")),

		names.ResourceQuotaController: on(every(corev1.SchemeGroupVersion, "resourcequotas")),
		names.GarbageCollectorController: on(trigger{informer.Root, func(key string, value []byte) bool {
			return !strings.HasPrefix(key, informer.Root+"events/") && stored.Collectable(value)
		}}),
		names.NamespaceController: on(namespaces.that(func(_ string, value []byte) bool { return stored.Terminating(value) })),

		names.ServiceAccountController: {
			writes: []trigger{namespaces, every(corev1.SchemeGroupVersion, "serviceaccounts").named("default")},
			needed: lacksServiceAccount,
		},
		names.RootCACertificatePublisherController: {
			writes: []trigger{namespaces, every(corev1.SchemeGroupVersion, "configmaps").named(rootCAName)},
			needed: lacksRootCA(servingCA),
		},
		names.CertificateSigningRequestSigningController: on(requests),
		names.CertificateSigningRequestCleanerController: on(requests),
		names.ServiceAccountTokenController:              on(tokens),
		names.LegacyServiceAccountTokenCleanerController: on(tokens),
		names.ClusterRoleAggregationController:           {writes: []trigger{clusterRoles}, needed: lacksAggregation},
		names.ValidatingAdmissionPolicyStatusController: on(
			every(admissionregistrationv1.SchemeGroupVersion, "validatingadmissionpolicies")),
	}
}

// ofWholeStore reports whether objects of every kind may lead to it.
func (d *demand) ofWholeStore() bool {
	return d != nil && slices.ContainsFunc(d.writes, func(t trigger) bool { return t.prefix == informer.Root })
}

// HasDaemonSets reports whether there is one: its controller has work when nodes change.
func HasDaemonSets(ctx context.Context, s *registry.Reader) (bool, error) {
	found, err := every(appsv1.SchemeGroupVersion, "daemonsets").find(ctx, s)
	return found != "", err
}

// contains matches objects that hold the text, in whatever field.
func contains(text string) func(string, []byte) bool {
	return func(_ string, value []byte) bool { return bytes.Contains(value, []byte(text)) }
}

// unsettledRange matches service ranges that have yet to be made ready, or are to go.
func unsettledRange(_ string, value []byte) bool {
	return stored.UnsettledRange(value, servicecidrs.ServiceCIDRProtectionFinalizer)
}

func on(writes ...trigger) demand { return demand{writes: writes} }

// every is all objects of a built-in resource.
func every(v schema.GroupVersion, resource string) trigger {
	return trigger{prefix: informer.Prefix(v.WithResource(resource).GroupResource())}
}

func (t trigger) that(match func(key string, value []byte) bool) trigger {
	t.match = match
	return t
}

// but is all objects except that one, given as namespace/name.
func (t trigger) but(name string) trigger {
	return t.that(func(key string, _ []byte) bool { return key != t.prefix+name })
}

// named is the objects of that name, in all namespaces.
func (t trigger) named(name string) trigger {
	return t.that(func(key string, _ []byte) bool { return strings.HasSuffix(key, "/"+name) })
}

func (t trigger) matches(key string, value []byte) bool {
	return strings.HasPrefix(key, t.prefix) && (t.match == nil || t.match(key, value))
}

// find returns the key of an object of t in the store, or "" if there is none.
func (t trigger) find(ctx context.Context, s *registry.Reader) (found string, err error) {
	page := int64(registry.Page)
	if t.match == nil {
		page = 1
	}
	err = s.Scan(ctx, t.prefix, page, func(key string, value []byte) bool {
		if t.matches(key, value) {
			found = key
		}
		return found == ""
	})
	return found, err
}

// holds says whether there is an object of t under a key.
func (t trigger) holds(ctx context.Context, s *registry.Reader, key string) (bool, error) {
	value, err := s.Get(ctx, key)
	return value != nil && t.matches(key, value), err
}

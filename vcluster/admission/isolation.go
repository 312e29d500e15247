// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	resourcev1 "k8s.io/api/resource/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/warning"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/metrics/pkg/apis/metrics"

	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/pod"
	"github.com/berth-dev/berth/vcluster/inside"
)

// Isolation is the plugin that rejects requests that would reach past the space: pods,
// services and claims that ask for the host's own, lists in objects that would cost all
// spaces, and the objects that only Berth writes.
type Isolation struct {
	*admission.Handler
	snapshots bool
	volumes   bool
	where     translate.Placement
	settings  *translate.Settings
}

// NewIsolation returns the plugin. Where volume snapshots are synced, claims may be
// made of them; where the tenant's own volumes are, claims may name them; where
// pods may name nodes, there may be DaemonSets.
func NewIsolation(snapshots, volumes bool, where translate.Placement, settings *translate.Settings) *Isolation {
	return &Isolation{admission.NewHandler(admission.Create, admission.Update, admission.Delete, admission.Connect), snapshots, volumes, where, settings}
}

var _ admission.ValidationInterface = (*Isolation)(nil)

// Validate implements [admission.ValidationInterface].
func (p *Isolation) Validate(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if r := a.GetResource(); r.Group == "" && r.Resource == "nodes" && !changesNothing(a) {
		return admission.NewForbidden(a, errNode) // whoever asks: what Berth writes does not come here
	}
	if op := a.GetOperation(); op != admission.Create && op != admission.Update {
		return nil
	}
	if a.GetResource().Group == apiregistration.GroupName && !inside.Is(ctx) {
		return validateAPIService(a)
	}
	if r := a.GetResource(); r.Group == appsv1.GroupName && r.Resource == "daemonsets" && a.GetOperation() == admission.Create && !p.where.ByName {
		return admission.NewForbidden(a, errors.New("a DaemonSet runs a pod on each node, and nodes are hidden in a space; "+
			"use a Deployment, with a topologySpreadConstraint on "+corev1.LabelHostname+" to have its pods on different nodes"))
	}
	if r := a.GetResource(); r.Group == discoveryv1.GroupName && r.Resource == "endpointslices" && !inside.Is(ctx) {
		return validateSpec(a, &discoveryv1.EndpointSlice{}, translate.CheckEndpointSlice)
	}
	if a.GetResource().Group == resourcev1.GroupName && a.GetSubresource() == "" && p.settings.Claims {
		return p.validateDeviceClaim(a) // whoever asks: the controller creates claims by a tenant's template
	}
	if check := controllerChecks()[a.GetResource().GroupResource()]; check != nil {
		return check(a)
	}
	if a.GetResource().Group == networkingv1.GroupName && a.GetSubresource() == "" && !inside.Is(ctx) {
		return validateNetworking(a)
	}
	if a.GetResource().Group != "" {
		return nil
	}
	create := a.GetOperation() == admission.Create
	switch resource := a.GetResource().Resource + "/" + a.GetSubresource(); {
	case resource == "pods/", resource == "pods/ephemeralcontainers", resource == "pods/resize":
		return p.validatePod(a)
	case (resource == "pods/binding" || resource == "bindings/") && create && !inside.Is(ctx):
		return admission.NewForbidden(a, errors.New("the host schedules the pods of a space; create pods without bindings"))
	case resource == "services/":
		return validateService(ctx, a)
	case resource == "endpoints/" && !inside.Is(ctx):
		return validateSpec(a, &corev1.Endpoints{}, translate.CheckEndpoints) //nolint:staticcheck // tenants may still write them
	case resource == "persistentvolumeclaims/" && (create || !inside.Is(ctx)):
		// Berth itself creates none: those from inside are a controller's, by a tenant's template.
		return p.validateClaim(a)
	default:
		return nil
	}
}

// changesNothing reports whether a request is an update that leaves its object as it
// is, as clients make who write what they have read.
func changesNothing(a admission.Attributes) bool {
	if a.GetOperation() != admission.Update {
		return false
	}
	object, old := a.GetObject().DeepCopyObject(), a.GetOldObject().DeepCopyObject()
	for _, o := range []runtime.Object{object, old} {
		m, err := meta.Accessor(o)
		if err != nil {
			return false
		}
		m.SetManagedFields(nil)
	}
	return equality.Semantic.DeepEqual(object, old)
}

var errNode = errors.New("nodes belong to the host and are hidden in a space. Berth maintains the virtual nodes that a space can see. " +
	"To move a pod, delete it, and the host schedules the next one")

// syncedGroups are those of kinds that are synced and not built in. While they are synced, the platform forces their definitions, and no
// APIService may take them over; what is made before a sync is enabled mustn't either.
var syncedGroups = []string{"gateway.networking.k8s.io", "snapshot.storage.k8s.io"}

// validateAPIService rejects what would hand over a built-in API: handed to a
// service that does not answer, they would keep the space from starting again,
// and so from being repaired. What pods use is the host's to tell. What is synced
// must have passed the schema of its definition, and what admits it here.
func validateAPIService(a admission.Attributes) error {
	v, ok := a.GetObject().(*apiregistration.APIService)
	if !ok || v.Spec.Service == nil {
		return nil
	}
	version := schema.GroupVersion{Group: v.Spec.Group, Version: v.Spec.Version}
	if slices.Contains(syncedGroups, v.Spec.Group) {
		return admission.NewForbidden(a, fmt.Errorf("spec.service: %s is synced with the host, and is served by the space itself", version))
	}
	if legacyscheme.Scheme.IsVersionRegistered(version) || apiextensions.Scheme.IsVersionRegistered(version) ||
		v.Spec.Group == apiregistration.GroupName || v.Spec.Group == metrics.GroupName {
		return admission.NewForbidden(a, fmt.Errorf("spec.service: %s is built in, and is served by the space itself", version))
	}
	return nil
}

// validateNetworking rejects what is too much in one object. What else an ingress
// may not ask for depends on its class, and the syncer checks it.
func validateNetworking(a admission.Attributes) error {
	switch a.GetResource().Resource {
	case "ingresses":
		return validateSpec(a, &networkingv1.Ingress{}, func(v *networkingv1.Ingress) field.ErrorList { return translate.CheckIngressSize(&v.Spec) })
	case "networkpolicies":
		return validateSpec(a, &networkingv1.NetworkPolicy{}, translate.CheckNetworkPolicy)
	default:
		return nil
	}
}

func (p *Isolation) checkPod(m *metav1.ObjectMeta, spec *corev1.PodSpec) field.ErrorList {
	return slices.Concat(pod.Check(m, spec), p.where.Check(spec), pod.CheckSettings(p.settings, m, spec))
}

func (p *Isolation) validatePod(a admission.Attributes) error {
	errs, err := asksAnew(a, &corev1.Pod{}, func(v *corev1.Pod) field.ErrorList {
		spec := v.Spec
		if a.GetOperation() == admission.Update {
			spec = pod.Asked(v)
		}
		return p.checkPod(&v.ObjectMeta, &spec)
	})
	if err != nil {
		return err
	}
	if a.GetSubresource() == "ephemeralcontainers" {
		for _, e := range errs {
			e.Detail += "; use kubectl debug with --profile=baseline or --profile=restricted"
		}
	}
	return invalid(a, errs)
}

// validateClaim checks what changes: the volume that Berth gave a claim stays in
// the tenant's updates of it. A claim names a volume of the tenant's own from the
// start, or never.
func (p *Isolation) validateClaim(a admission.Attributes) error {
	volumes := p.volumes
	if a.GetOperation() == admission.Update {
		claim, old := &corev1.PersistentVolumeClaim{}, &corev1.PersistentVolumeClaim{}
		if err := errors.Join(versioned(a.GetObject(), claim), versioned(a.GetOldObject(), old)); err != nil {
			return err
		}
		volumes = volumes && old.Spec.VolumeName == claim.Spec.VolumeName
	}
	return validateSpec(a, &corev1.PersistentVolumeClaim{}, func(v *corev1.PersistentVolumeClaim) field.ErrorList {
		return translate.CheckClaim(&v.Spec, p.snapshots, volumes)
	})
}

// validateDeviceClaim rejects resource claims that the syncer would, and templates of these.
func (p *Isolation) validateDeviceClaim(a admission.Attributes) error {
	path := field.NewPath("spec")
	switch a.GetResource().Resource {
	case "resourceclaims":
		return validateSpec(a, &resourcev1.ResourceClaim{}, func(v *resourcev1.ResourceClaim) field.ErrorList {
			return translate.CheckDeviceClaim(p.settings.Counted, path, &v.ObjectMeta, &v.Spec)
		})
	case "resourceclaimtemplates":
		return validateSpec(a, &resourcev1.ResourceClaimTemplate{}, func(v *resourcev1.ResourceClaimTemplate) field.ErrorList {
			return translate.CheckDeviceClaim(p.settings.Counted, path.Child("spec"), &v.Spec.ObjectMeta, &v.Spec.Spec)
		})
	default:
		return nil
	}
}

func validateService(ctx context.Context, a admission.Attributes) error {
	service := &corev1.Service{}
	if err := versioned(a.GetObject(), service); err != nil {
		return err
	}
	for _, text := range translate.ServiceWarnings(&service.Spec) {
		warning.AddWarning(ctx, "", text)
	}
	return validateSpec(a, &corev1.Service{}, func(v *corev1.Service) field.ErrorList { return translate.CheckService(&v.Spec) })
}

func validateSpec[T runtime.Object](a admission.Attributes, empty T, check func(T) field.ErrorList) error {
	errs, err := asksAnew(a, empty, check)
	if err != nil {
		return err
	}
	return invalid(a, errs)
}

// asksAnew is what check has against an object, less what it has against the one
// that it takes the place of: what an object had before, under older rules, must
// not keep its finalizers and labels from being changed.
func asksAnew[T runtime.Object](a admission.Attributes, empty T, check func(T) field.ErrorList) (field.ErrorList, error) {
	asks := func(o runtime.Object) (field.ErrorList, error) {
		v, ok := empty.DeepCopyObject().(T)
		if !ok {
			return nil, apierrors.NewInternalError(fmt.Errorf("a copy of a %T is none", empty))
		}
		if err := versioned(o, v); err != nil {
			return nil, err
		}
		return check(v), nil
	}
	errs, err := asks(a.GetObject())
	if err != nil || len(errs) == 0 || a.GetOperation() != admission.Update {
		return errs, err
	}
	had, err := asks(a.GetOldObject())
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(errs, func(e *field.Error) bool {
		return slices.ContainsFunc(had, func(h *field.Error) bool { return h.Error() == e.Error() })
	}), nil
}

func versioned(internal, external runtime.Object) error {
	if err := legacyscheme.Scheme.Convert(internal, external, nil); err != nil {
		return apierrors.NewInternalError(fmt.Errorf("convert %T: %w", internal, err))
	}
	return nil
}

// invalid answers as a failed validation does, with each field named, but as
// Forbidden: the object is well-formed, only not for a space.
func invalid(a admission.Attributes, errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return apierrors.NewForbidden(schema.GroupResource{Resource: a.GetResource().Resource}, a.GetName(), errs.ToAggregate())
}

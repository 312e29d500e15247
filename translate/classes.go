// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	annotationDefaultIngressClass = "ingressclass.kubernetes.io/is-default-class"
	// IngressController is the controller that the space sees in place of the host's ingress controllers.
	IngressController = Domain + "/ingress"
	// RuntimeHandler is the handler that the space sees in place of those of the host's nodes.
	RuntimeHandler = "host"
)

func classMeta(host metav1.Object, keep string) metav1.ObjectMeta {
	out := metav1.ObjectMeta{Name: host.GetName(), Labels: map[string]string{LabelManagedBy: ManagedBy}}
	if value := host.GetAnnotations()[keep]; value != "" {
		out.Annotations = map[string]string{keep: value}
	}
	return out
}

// pullClassMeta copies the host's metadata of a class to have.
func pullClassMeta(want, have metav1.Object, keep string) (changed bool) {
	set := func(get map[string]string, put func(map[string]string), key, value string) {
		if get[key] == value {
			return
		}
		if get == nil {
			get = map[string]string{}
		}
		if get[key] = value; value == "" {
			delete(get, key)
		}
		put(get)
		changed = true
	}
	set(have.GetLabels(), have.SetLabels, LabelManagedBy, ManagedBy)
	if keep != "" {
		set(have.GetAnnotations(), have.SetAnnotations, keep, want.GetAnnotations()[keep])
	}
	return changed
}

// IngressClass returns the space's copy of the host's class. Controller and parameters are replaced, so that no ingress
// controller in the space acts on the class.
func IngressClass(host *networkingv1.IngressClass) *networkingv1.IngressClass {
	return &networkingv1.IngressClass{
		ObjectMeta: classMeta(host, annotationDefaultIngressClass),
		Spec:       networkingv1.IngressClassSpec{Controller: IngressController},
	}
}

// PullIngressClass copies the host's class to have. It reports whether anything differed, and whether that includes
// immutable fields, so that the class must be recreated.
func PullIngressClass(want, have *networkingv1.IngressClass) (changed, recreate bool) {
	changed = pullClassMeta(want, have, annotationDefaultIngressClass)
	recreate = want.Spec.Controller != have.Spec.Controller
	if have.Spec.Parameters != nil {
		have.Spec.Parameters, changed = nil, true
	}
	return changed, recreate
}

// RuntimeClass returns the space's copy of the host's class: its name and its overhead. Handler and node selector are
// replaced.
func RuntimeClass(host *nodev1.RuntimeClass) *nodev1.RuntimeClass {
	return &nodev1.RuntimeClass{ObjectMeta: classMeta(host, ""), Handler: RuntimeHandler, Overhead: host.Overhead.DeepCopy()}
}

// PullRuntimeClass is [PullIngressClass] for runtime classes.
func PullRuntimeClass(want, have *nodev1.RuntimeClass) (changed, recreate bool) {
	changed = pullClassMeta(want, have, "")
	if !equality.Semantic.DeepEqual(want.Overhead, have.Overhead) || have.Scheduling != nil {
		have.Overhead, have.Scheduling, changed = want.Overhead.DeepCopy(), nil, true
	}
	return changed, want.Handler != have.Handler
}

// PriorityClass returns the space's copy of the host's class. It is never the global default, because a space may have
// its own.
func PriorityClass(host *schedulingv1.PriorityClass) *schedulingv1.PriorityClass {
	out := &schedulingv1.PriorityClass{ObjectMeta: classMeta(host, ""), Value: host.Value, Description: host.Description}
	if p := host.PreemptionPolicy; p != nil {
		policy := *p
		out.PreemptionPolicy = &policy
	}
	return out
}

// PullPriorityClass is [PullIngressClass] for priority classes.
func PullPriorityClass(want, have *schedulingv1.PriorityClass) (changed, recreate bool) {
	changed = pullClassMeta(want, have, "")
	if want.Description != have.Description || have.GlobalDefault {
		have.Description, have.GlobalDefault, changed = want.Description, false, true
	}
	return changed, want.Value != have.Value || !equality.Semantic.DeepEqual(want.PreemptionPolicy, have.PreemptionPolicy)
}

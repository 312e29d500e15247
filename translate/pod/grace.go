// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/bounds"
)

// gracePeriods visits each period for which a pod may delay its end: drains of the
// host's nodes, and the deletion of a space, wait that long.
func gracePeriods(path *field.Path, spec *corev1.PodSpec, visit func(*field.Path, **int64)) {
	const seconds = "terminationGracePeriodSeconds"
	visit(path.Child(seconds), &spec.TerminationGracePeriodSeconds)
	eachContainerAt(path, spec, func(path *field.Path, c *corev1.Container) {
		for name, probe := range map[string]*corev1.Probe{"livenessProbe": c.LivenessProbe, "readinessProbe": c.ReadinessProbe, "startupProbe": c.StartupProbe} {
			if probe != nil {
				visit(path.Child(name, seconds), &probe.TerminationGracePeriodSeconds)
			}
		}
	})
}

func checkGrace(path *field.Path, spec *corev1.PodSpec) (errs field.ErrorList) {
	gracePeriods(path, spec, func(path *field.Path, period **int64) {
		if have := ptr.Deref(*period, 0); bounds.GracePeriodSeconds.Check(have) != nil {
			errs = append(errs, field.Invalid(path, have, bounds.GracePeriodSeconds.Check(have).Error()))
		}
	})
	return errs
}

// capGrace shortens in a host pod what [checkGrace] refuses: its pod may be older
// than the check.
func capGrace(spec *corev1.PodSpec) {
	gracePeriods(nil, spec, func(_ *field.Path, period **int64) {
		if *period != nil {
			*period = ptr.To(min(**period, bounds.GracePeriodSeconds.Bound().Default))
		}
	})
}

// Grace is how many seconds the host's kubelet gives the containers of v, which is
// being deleted. A tenant's own deletion may ask for more than its pod.
func Grace(v *corev1.Pod) int64 {
	return min(ptr.Deref(v.DeletionGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds), bounds.GracePeriodSeconds.Bound().Default)
}

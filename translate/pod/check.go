// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"fmt"
	"reflect"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Check lists what a tenant may not ask of the host with a pod (M2, M4),
// each with its field, and nothing for a pod that may be translated. Which nodes
// it may ask for, [Placement.Check] tells, and what depends on the settings of its
// space, [CheckSettings].
func Check(meta *metav1.ObjectMeta, spec *corev1.PodSpec) field.ErrorList {
	path := field.NewPath("spec")
	errs := podSecurity(meta, spec)
	errs = append(errs, scheduling(path, spec)...)
	errs = append(errs, countTerms(path, spec)...)
	errs = append(errs, checkGrace(path, spec)...)
	errs = append(errs, countParts(path, spec)...)
	errs = append(errs, checkSize(meta, spec)...)
	errs = append(errs, checkTopologies(path, spec)...)
	for i := range spec.Volumes {
		errs = append(errs, checkVolume(path.Child("volumes").Index(i), &spec.Volumes[i])...)
	}
	windowsOptions(path, spec, func(path *field.Path, o *corev1.WindowsSecurityContextOptions) {
		for name, set := range map[string]bool{"gmsaCredentialSpecName": o.GMSACredentialSpecName != nil, "gmsaCredentialSpec": o.GMSACredentialSpec != nil} {
			if set {
				errs = append(errs, field.Forbidden(path.Child(name), "spaces cannot use group-managed service accounts (GMSA) of the host; remove the field"))
			}
		}
	})
	size := 0
	for key, value := range downwardAnnotations(&corev1.Pod{ObjectMeta: *meta, Spec: *spec}) {
		size += len(key) + len(value)
	}
	if size > maxDownward {
		errs = append(errs, field.Forbidden(field.NewPath("metadata", "annotations"),
			fmt.Sprintf("the pod's downward API contains %d bytes of labels and annotations, at most %d are possible; refer to single keys", size, maxDownward)))
	}
	return errs
}

// maxDownward is the most, in bytes, that a pod's downward API may tell of its
// labels and annotations: a host pod holds that in annotations, and leaves some
// of their limit to Berth and to the host.
const maxDownward = validation.TotalAnnotationSizeLimitB - 16<<10

// scheduling refuses what is the host's scheduler's.
func scheduling(path *field.Path, spec *corev1.PodSpec) field.ErrorList {
	var errs field.ErrorList
	forbid := func(name string, set bool, remedy string) {
		if set {
			errs = append(errs, field.Forbidden(path.Child(name), remedy))
		}
	}
	forbid("nodeName", spec.NodeName != "", "nodes are hidden in a space; remove the field and let the host's scheduler choose")
	forbid("schedulerName", spec.SchedulerName != "" && spec.SchedulerName != corev1.DefaultSchedulerName,
		"only "+corev1.DefaultSchedulerName+" schedules pods of a space; remove the field")
	forbid("schedulingGroup", spec.SchedulingGroup != nil, "spaces cannot use pod groups of the host's scheduler; remove the field")
	forbid("priorityClassName", strings.HasPrefix(spec.PriorityClassName, "system-"), "system priority classes are reserved for the host; use another class")
	return errs
}

// checkVolume lets through the volume sources that cannot reach the host: the
// ones of Pod Security's restricted level and images, which are pulled as the
// containers' are, less inline CSI volumes, whose drivers and handles are the
// host's.
func checkVolume(path *field.Path, v *corev1.Volume) field.ErrorList {
	rest := v.VolumeSource
	rest.ConfigMap, rest.Secret, rest.EmptyDir, rest.DownwardAPI = nil, nil, nil, nil
	rest.Projected, rest.PersistentVolumeClaim, rest.Ephemeral, rest.Image = nil, nil, nil, nil
	var errs field.ErrorList
	for _, name := range setFields(rest) {
		errs = append(errs, field.Forbidden(path.Child(name),
			fmt.Sprintf("volume %q: pods of a space can mount only configMap, secret, emptyDir, downwardAPI, projected, persistentVolumeClaim, ephemeral, and image volumes", v.Name)))
	}
	if v.Projected != nil {
		for i, source := range v.Projected.Sources {
			kept := source
			kept.Secret, kept.ConfigMap, kept.DownwardAPI, kept.ServiceAccountToken = nil, nil, nil, nil
			for _, name := range setFields(kept) {
				errs = append(errs, field.Forbidden(path.Child("projected", "sources").Index(i).Child(name),
					"pods of a space can project only secret, configMap, downwardAPI, and serviceAccountToken sources"))
			}
		}
	}
	return errs
}

// setFields are the names, as in JSON, of what a struct of pointers holds.
func setFields(of any) (names []string) {
	v := reflect.ValueOf(of)
	for i := range v.NumField() {
		if !v.Field(i).IsNil() {
			name, _, _ := strings.Cut(v.Type().Field(i).Tag.Get("json"), ",")
			names = append(names, name)
		}
	}
	return names
}

// Asked is what the tenant asked of a pod that is in the space already: its
// spec less what Berth has written into it since.
func Asked(v *corev1.Pod) corev1.PodSpec {
	spec := v.Spec
	spec.NodeName = ""
	return spec
}

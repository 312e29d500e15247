// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/kubernetes/pkg/fieldpath"

	"github.com/berth-dev/berth/translate"
)

// The downward API of a host pod would tell the host's side of things. Each
// virtual value is therefore kept in an annotation of the host pod, and every
// field path is pointed at that annotation: volumes then follow changes just as
// they do on a plain cluster.
const (
	annotationLabels      = translate.Domain + "/labels"
	annotationAnnotations = translate.Domain + "/annotations"
	annotationAccount     = translate.Domain + "/service-account"
	prefixAnnotation      = "annotation." + translate.Domain + "/"
)

// fieldPath is where a host pod finds what path meant in the space.
//
// The host's addresses are hidden (N1), so a pod that asks for its host's gets
// its own, the only one of the two that it could use.
func fieldPath(path string) string {
	annotation := func(key string) string { return "metadata.annotations['" + key + "']" }
	if base, key, ok := fieldpath.SplitMaybeSubscriptedPath(path); ok {
		switch base {
		case "metadata.labels":
			return annotation(annotationKey(translate.PrefixLabel, key))
		case "metadata.annotations":
			return annotation(annotationKey(prefixAnnotation, key))
		}
	}
	switch path {
	case "metadata.name":
		return annotation(translate.AnnotationName)
	case "metadata.namespace":
		return annotation(translate.AnnotationNamespace)
	case "metadata.uid":
		return annotation(translate.AnnotationUID)
	case "metadata.labels":
		return annotation(annotationLabels)
	case "metadata.annotations":
		return annotation(annotationAnnotations)
	case "spec.nodeName":
		return annotation(translate.AnnotationNode)
	case "spec.serviceAccountName":
		return annotation(annotationAccount)
	case "status.podIP", "status.podIPs":
		return path
	case "status.hostIP":
		return "status.podIP"
	case "status.hostIPs":
		return "status.podIPs"
	default:
		return annotation(translate.Domain + "/unknown") // absent, thus empty: nothing of the host's
	}
}

// annotationKey folds a label's or annotation's key, which may hold a slash of
// its own, into the name part of a key in Berth's domain.
func annotationKey(prefix, key string) string {
	return prefix + translate.Hashed("", translate.LimitLabel, prefix, key)[3:]
}

// downwardAnnotations are the annotations of the host pod that v's field
// references are pointed at. Only what is referred to is copied: annotations
// may be large. Each is made once, however often a pod refers to it.
func downwardAnnotations(v *corev1.Pod) map[string]string {
	out := map[string]string{}
	once := func(key string, value func() string) {
		if _, made := out[key]; !made {
			out[key] = value()
		}
	}
	visitFieldRefs(v, func(path string) {
		if base, key, ok := fieldpath.SplitMaybeSubscriptedPath(path); ok {
			switch base {
			case "metadata.labels":
				out[annotationKey(translate.PrefixLabel, key)] = v.Labels[key]
			case "metadata.annotations":
				out[annotationKey(prefixAnnotation, key)] = v.Annotations[key]
			}
			return
		}
		switch path {
		case "metadata.labels":
			once(annotationLabels, func() string { return fieldpath.FormatMap(v.Labels) })
		case "metadata.annotations":
			once(annotationAnnotations, func() string { return fieldpath.FormatMap(v.Annotations) })
		case "spec.serviceAccountName":
			out[annotationAccount] = v.Spec.ServiceAccountName
		}
	})
	return out
}

func visitFieldRefs(v *corev1.Pod, visit func(path string)) {
	eachContainer(&v.Spec, func(c *corev1.Container) {
		for _, env := range c.Env {
			if env.ValueFrom != nil && env.ValueFrom.FieldRef != nil {
				visit(env.ValueFrom.FieldRef.FieldPath)
			}
		}
	})
	items := func(items []corev1.DownwardAPIVolumeFile) {
		for _, item := range items {
			if item.FieldRef != nil {
				visit(item.FieldRef.FieldPath)
			}
		}
	}
	for _, volume := range v.Spec.Volumes {
		if volume.DownwardAPI != nil {
			items(volume.DownwardAPI.Items)
		}
		if volume.Projected != nil {
			for _, source := range volume.Projected.Sources {
				if source.DownwardAPI != nil {
					items(source.DownwardAPI.Items)
				}
			}
		}
	}
}

// TellNode records on want, v's wanted host pod, the alias of the node that
// have was scheduled to, if the pod asks for it.
func TellNode(s translate.Space, want, have *corev1.Pod) {
	if have.Spec.NodeName == "" {
		return
	}
	asks := false
	visitFieldRefs(want, func(path string) { asks = asks || path == fieldPath("spec.nodeName") })
	if asks {
		want.Annotations[translate.AnnotationNode] = s.NodeAlias(have.Spec.NodeName)
	}
}

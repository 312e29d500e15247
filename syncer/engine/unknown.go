// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// annotationUnknown is only on the syncer's copies of an extension's objects. It lists the fields of the spec that
// Berth's types don't have: the host's definition may be newer than these.
const annotationUnknown = translate.Domain + "/unknown-fields"

// maxUnknown is how many of them are listed, because a tenant may write any number.
const maxUnknown = 10

// typed converts an object of a space to the type of its kind, and adds annotationUnknown. If that fails, only the
// metadata is kept.
func typed(r resources.Resource, obj any) (any, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil // of a tombstone, or already converted
	}
	out := r.New()
	var unknown []string
	err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(u.Object, out, true)
	strict, is := runtime.AsStrictDecodingError(err)
	switch {
	case is:
		for _, err := range strict.Errors() { // unknown field "spec.tls"
			if _, quoted, _ := strings.Cut(err.Error(), " field "); strings.HasPrefix(quoted, `"spec.`) && len(unknown) < maxUnknown {
				unknown = append(unknown, strings.Trim(quoted, `"`))
			}
		}
	case err != nil:
		out = r.New()
		out.SetNamespace(u.GetNamespace())
		out.SetName(u.GetName())
		out.SetUID(u.GetUID())
		out.SetResourceVersion(u.GetResourceVersion())
		out.SetDeletionTimestamp(u.GetDeletionTimestamp())
		unknown = []string{"spec"}
	}
	annotations := out.GetAnnotations()
	delete(annotations, annotationUnknown)
	if len(unknown) > 0 {
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[annotationUnknown] = strings.Join(unknown, "\n")
	}
	out.SetAnnotations(annotations)
	return out, nil
}

// CheckUnknown rejects fields that would not be synced. Without them, the object could mean something else, such as a
// gateway that no longer requires client certificates.
func CheckUnknown(v client.Object) (errs field.ErrorList) {
	note := v.GetAnnotations()[annotationUnknown]
	if note == "" {
		return nil
	}
	for _, name := range strings.Split(note, "\n") {
		errs = append(errs, field.Forbidden(field.NewPath(name), "this version of Berth can't sync the field; remove it"))
	}
	return errs
}

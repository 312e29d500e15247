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

// annotationUnknown is on an object of an extension as the syncer holds it, and
// nowhere else: the fields of its spec that Berth's types do not have. The host's
// definition may be newer than these, and a tenant may edit its own.
const annotationUnknown = translate.Domain + "/unknown-fields"

// maxUnknown is how many of them are named: a tenant may write any number.
const maxUnknown = 10

// typed is an object of a space's as the type of its kind, with a note of what
// that does not hold. What can't be read as that type keeps its metadata only.
func typed(r resources.Resource, obj any) (any, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return obj, nil // a tombstone's, or one that is typed already
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

// CheckUnknown refuses fields that would not go to the host: what is left of v there
// could mean another thing than v, be it a gateway that no longer asks its clients
// for certificates.
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

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package publication

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	metav1ac "k8s.io/client-go/applyconfigurations/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"

	berthac "github.com/berth-dev/berth/api/applyconfiguration/api/v1alpha1"
)

// objectManager is the field manager of PublishedObjects.
const objectManager = "berth-operator"

// write makes the PublishedObjects of a publication those that were found. It keeps those of sources that can't be read.
func (r *reconciler) write(ctx context.Context, publication *v1alpha1.Publication, found *outcome, unreadable []selection) error {
	have, err := r.publishedOf(ctx, publication.Name)
	if err != nil {
		return err
	}
	existing, wanted := map[string]*v1alpha1.PublishedObject{}, map[string]bool{}
	for i := range have {
		existing[have[i].Name] = &have[i]
	}
	for _, object := range found.objects {
		name := publication.Name + "-" + object.hash()
		wanted[name] = true
		if !found.valid || matches(existing[name], publication, object) {
			continue
		}
		if err := r.apply(ctx, name, publication, object); err != nil {
			return err
		}
	}
	for name, object := range existing {
		switch {
		case wanted[name]:
		case selectedBy(object, unreadable):
			found.kept++
		default:
			if err := r.delete(ctx, object); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r *reconciler) apply(ctx context.Context, name string, publication *v1alpha1.Publication, object chosen) error {
	spec := berthac.PublishedObjectSpec().WithObject(runtime.RawExtension{Raw: object.content}).WithNamespaces(namespacesOf(publication))
	for _, field := range publication.Spec.Fields {
		spec.WithFields(berthac.PublicationField().WithPath(field.Path).WithExpression(field.Expression))
	}
	config := berthac.PublishedObject(name).WithLabels(map[string]string{v1alpha1.LabelPublication: publication.Name}).WithSpec(spec).
		WithOwnerReferences(metav1ac.OwnerReference().WithAPIVersion(v1alpha1.GroupVersion.String()).WithKind("Publication").
			WithName(publication.Name).WithUID(publication.UID))
	if err := r.client.Apply(ctx, config, client.FieldOwner(objectManager), client.ForceOwnership); err != nil {
		return fmt.Errorf("write PublishedObject %s of %s: %w", name, object, err)
	}
	return nil
}

func namespacesOf(publication *v1alpha1.Publication) v1alpha1.PublicationNamespaces {
	if publication.Spec.Namespaces == "" {
		return v1alpha1.SameNamespace
	}
	return publication.Spec.Namespaces
}

// matches reports whether a PublishedObject is as it has to be.
func matches(have *v1alpha1.PublishedObject, publication *v1alpha1.Publication, object chosen) bool {
	return have != nil && have.Spec.Namespaces == namespacesOf(publication) && equality.Semantic.DeepEqual(have.Spec.Fields, publication.Spec.Fields) &&
		len(have.OwnerReferences) == 1 && have.OwnerReferences[0].UID == publication.UID && SameJSON(have.Spec.Object.Raw, object.content)
}

// SameJSON reports whether two texts are the same JSON.
func SameJSON(a, b []byte) bool {
	if bytes.Equal(a, b) {
		return true
	}
	var x, y any
	return json.Unmarshal(a, &x) == nil && json.Unmarshal(b, &y) == nil && equality.Semantic.DeepEqual(x, y)
}

// asWritten returns a selection for a source whose kind can't be found at the moment. Only selectedBy may use it.
func asWritten(source *v1alpha1.PublicationSource) selection {
	s := selection{kind: schema.FromAPIVersionAndKind(source.APIVersion, source.Kind), namespace: source.Namespace}
	if source.Name != "" {
		s.fieldSel = nameSelector(source.Name)
	}
	return s
}

func nameSelector(name string) string {
	return fields.OneTermEqualSelector(metav1.ObjectNameField, name).String()
}

// selectedBy reports whether the source of an object may be among the selections.
func selectedBy(object *v1alpha1.PublishedObject, selections []selection) bool {
	u := &unstructured.Unstructured{}
	if json.Unmarshal(object.Spec.Object.Raw, &u.Object) != nil {
		return false
	}
	for _, s := range selections {
		if u.GroupVersionKind().GroupKind() == s.kind.GroupKind() && u.GetNamespace() == s.namespace && (s.fieldSel == "" || s.fieldSel == nameSelector(u.GetName())) {
			return true
		}
	}
	return false
}

// deleteAll deletes the PublishedObjects of a publication that no longer exists.
func (r *reconciler) deleteAll(ctx context.Context, publication string) error {
	have, err := r.publishedOf(ctx, publication)
	for i := range have {
		if err := r.delete(ctx, &have[i]); err != nil {
			return err
		}
	}
	return err
}

func (r *reconciler) publishedOf(ctx context.Context, publication string) ([]v1alpha1.PublishedObject, error) {
	list := &v1alpha1.PublishedObjectList{}
	if err := r.client.List(ctx, list, client.MatchingLabels{v1alpha1.LabelPublication: publication}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list PublishedObjects of Publication %s: %w", publication, err)
	}
	return list.Items, nil
}

func (r *reconciler) delete(ctx context.Context, object *v1alpha1.PublishedObject) error {
	err := r.client.Delete(ctx, object, client.Preconditions{UID: &object.UID})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete PublishedObject %s: %w", object.Name, err)
	}
	return nil
}

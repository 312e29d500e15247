// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"context"
	"errors"
	"fmt"
	"path"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/uuid"
	apirequest "k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/storage"

	"github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/vcluster/refusal"
)

var resource = apiextensions.Resource("customresourcedefinitions") //nolint:gochecknoglobals // Does not change.

func refused(err error, name string) error { return refusal.Status(err, resource, name) }

// forbidden says why a definition that the platform shares can't be changed, and what to do instead.
func forbidden(set *definitions.Set, name string, match definitions.Match) error {
	share := match.CRD.Annotations[definitions.AnnotationShare]
	shared := fmt.Sprintf("the CustomResourceDefinition %s in force is the platform's, which shares it by the CRDShare %s, and it can't be changed here", name, share)
	switch {
	case match.Synced:
		shared = fmt.Sprintf(
			"the platform forces its own CustomResourceDefinition %s on this space, because it syncs these objects with the host; use that one, or ask the administrator of the platform to disable this sync for the space", name)
	case match.Reason == definitions.Forced:
		shared = fmt.Sprintf(
			"the platform forces its own CustomResourceDefinition %s on this space by the CRDShare %s; use that one, or ask the administrator of the platform to make the share Optional", name, share)
	case set.Policy() == definitions.LocalCRDFirst:
		shared += "; to use a definition of your own, create or apply it"
	default:
		shared += "; to use a definition of your own, choose the policy LocalCRDFirst, and create it"
	}
	return apierrors.NewForbidden(resource, name, errors.New(shared))
}

// exists says that a definition can't be created, because the policy of the space prefers the one that the platform shares.
func exists(name string, match definitions.Match) error {
	err := apierrors.NewAlreadyExists(resource, name)
	err.ErrStatus.Message = fmt.Sprintf(
		"customresourcedefinitions %q already exists: the platform shares it by the CRDShare %s, and the policy of this space prefers it; to use a definition of your own, choose the policy LocalCRDFirst",
		name, match.CRD.Annotations[definitions.AnnotationShare])
	return err
}

// Create implements [storage.Interface]. It refuses a definition that would not be in force.
func (d *definitionStorage) Create(ctx context.Context, key string, obj, out runtime.Object, ttl uint64) error {
	set, _ := d.space.current()
	if err := refuseCreate(set, path.Base(key)); err != nil {
		return err
	}
	return d.Interface.Create(ctx, key, obj, out, ttl)
}

// Delete implements [storage.Interface].
func (d *definitionStorage) Delete(
	ctx context.Context, key string, out runtime.Object, preconditions *storage.Preconditions,
	validate storage.ValidateObjectFunc, cached runtime.Object, opts storage.DeleteOptions,
) error {
	set, _ := d.space.current()
	name := path.Base(key)
	if match := set.InForce(name, true); match.Shared {
		return forbidden(set, name, match)
	}
	err := d.Interface.Delete(ctx, key, out, preconditions, validate, cached, opts)
	if match := set.InForce(name, false); match.Shared && storage.IsNotFound(err) {
		return forbidden(set, name, match)
	}
	return err
}

// GuaranteedUpdate implements [storage.Interface]. Where the platform shares a definition and the space has none, a change of it makes
// one of the space's own, as if the tenant had created it: so the tenant may apply its own.
func (d *definitionStorage) GuaranteedUpdate(
	ctx context.Context, key string, destination runtime.Object, ignoreNotFound bool,
	preconditions *storage.Preconditions, update storage.UpdateFunc, cached runtime.Object,
) error {
	set, since := d.space.current()
	name := path.Base(key)
	if match := set.InForce(name, true); match.Shared {
		return forbidden(set, name, match)
	}
	match := set.InForce(name, false)
	if !match.Shared {
		return d.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, update, cached)
	}
	own, err := d.space.ownNames(ctx, name)
	if err != nil {
		return err
	}
	if own[name] {
		return d.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, preconditions, update, nil)
	}
	info, ok := apirequest.RequestInfoFrom(ctx)
	switch {
	case ok && info.Subresource != "": // of upstream's controllers, which take a conflict for a definition that has changed
		return apierrors.NewConflict(resource, name, errors.New("the definition in force is the platform's, and so is its status"))
	case !ok || info.Verb != "update" && info.Verb != "patch":
		return forbidden(set, name, match)
	case !ignoreNotFound:
		return d.override(ctx, key, destination, preconditions, update, set, since)
	}
	// Server-side apply makes what isn't there.
	return d.Interface.GuaranteedUpdate(ctx, key, destination, ignoreNotFound, nil, update, nil)
}

// makesOwn reports whether a change of a shared definition is to make one of the space's own: a change of more than labels and the like, or
// 'kubectl apply' of the same definition.
func makesOwn(shared, changed *apiextensions.CustomResourceDefinition) bool {
	_, applied := changed.Annotations[corev1.LastAppliedConfigAnnotation]
	return applied || !equality.Semantic.DeepEqual(shared.Spec, changed.Spec)
}

// override stores what an update makes of a shared definition as the space's own. The update is of a definition that isn't established,
// so that it may change what can't be changed later, such as the scope.
func (d *definitionStorage) override(
	ctx context.Context, key string, destination runtime.Object, preconditions *storage.Preconditions, update storage.UpdateFunc,
	set *definitions.Set, since int64,
) error {
	name := path.Base(key)
	match := set.InForce(name, false)
	converted, err := internal(set.Of(name), since)
	if err != nil {
		return storage.NewInternalError(err)
	}
	shared := converted.DeepCopy()
	shared.Status = apiextensions.CustomResourceDefinitionStatus{}
	if err := preconditions.Check(key, shared); err != nil {
		return err
	}
	before := shared.DeepCopy()
	updated, _, err := update(shared, storage.ResponseMeta{ResourceVersion: uint64(since)}) //nolint:gosec // a revision is positive
	if err != nil {
		return err
	}
	own, ok := updated.(*apiextensions.CustomResourceDefinition)
	if !ok {
		return storage.NewInternalError(fmt.Errorf("unexpected type %T of a definition", updated))
	}
	if !makesOwn(before, own) {
		return forbidden(set, name, match)
	}
	own.UID, own.CreationTimestamp, own.Generation, own.ResourceVersion = uuid.NewUUID(), metav1.Now(), 1, ""
	delete(own.Annotations, definitions.AnnotationShare)
	own.Status = apiextensions.CustomResourceDefinitionStatus{}
	for _, v := range own.Spec.Versions {
		if v.Storage {
			own.Status.StoredVersions = []string{v.Name}
		}
	}
	return d.Create(ctx, key, own, destination, 0)
}

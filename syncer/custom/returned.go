// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package custom

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/syncer/declaration"
	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/syncer/services"
	"github.com/berth-dev/berth/translate"
)

// AnnotationReturned is on Secrets in a space that returned from the host: the resource and the name of the object for which they did.
const AnnotationReturned = translate.Domain + "/returned-for"

const (
	// indexReturned is the index of a space's objects by the names on the host of the Secrets that return for them.
	indexReturned = "berth.dev/returned"
	// indexImported is the index of a space's objects by what they name of the host, as the name of the ResourceSync/name.
	indexImported = "berth.dev/imported"
)

// index adds the indexes to an informer.
func (s *syncer) index(d *declaration.Declaration, informer cache.SharedIndexInformer) error {
	imported := func(obj any) ([]string, error) {
		if v, ok := obj.(*unstructured.Unstructured); ok {
			return d.ImportedBy(v), nil
		}
		return nil, nil
	}
	named := func(obj any) (names []string, _ error) {
		if v, ok := obj.(*unstructured.Unstructured); ok {
			for _, name := range d.Services(v) {
				names = append(names, v.GetNamespace()+"/"+name)
			}
		}
		return names, nil
	}
	return informer.AddIndexers(cache.Indexers{indexImported: imported, services.IndexServices: named, indexReturned: func(obj any) (names []string, _ error) {
		if v, ok := obj.(*unstructured.Unstructured); ok {
			for _, name := range d.Names(v1alpha1.FieldReturnedSecret, v) {
				names = append(names, declaration.ReturnedName(d.Name, s.Space, v.GetNamespace(), name))
			}
		}
		return names, nil
	}})
}

// returnSecrets copies to the space the Secrets that a controller of the host wrote for v. One that isn't there yet comes with a change of
// the host object's status.
func (s *syncer) returnSecrets(ctx context.Context, d *declaration.Declaration, v *unstructured.Unstructured) error {
	var errs []error
	for _, name := range d.Names(v1alpha1.FieldReturnedSecret, v) {
		host := &corev1.Secret{}
		// Not from the host's watches: the Secret has no label of Berth.
		err := s.Writer.Get(ctx, types.NamespacedName{Namespace: s.Space.HostNamespace(), Name: declaration.ReturnedName(d.Name, s.Space, v.GetNamespace(), name)}, host)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err == nil {
			err = s.returnSecret(ctx, d, v, name, host)
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("return the Secret %s: %w", name, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return s.Refuse(v, err)
	}
	return nil
}

func (s *syncer) returnSecret(ctx context.Context, d *declaration.Declaration, v *unstructured.Unstructured, name string, host *corev1.Secret) error {
	want := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: v.GetNamespace(), Name: name, Annotations: map[string]string{AnnotationReturned: d.Name + "/" + v.GetName()},
		},
		Type: typeOf(host), Data: host.Data,
	}
	have := &corev1.Secret{}
	err := s.VirtualAPI.Get(ctx, client.ObjectKeyFromObject(want), have)
	switch {
	case apierrors.IsNotFound(err):
		return s.VirtualAPI.Create(ctx, want)
	case err != nil:
		return err
	case have.Annotations[AnnotationReturned] != want.Annotations[AnnotationReturned]:
		return engine.Forbids(fmt.Errorf("a Secret %s exists that did not return for this object; delete it, or name another one", name))
	case have.Type != want.Type: // which is immutable
		if err := s.VirtualAPI.Delete(ctx, have, client.Preconditions{UID: &have.UID}); err != nil {
			return err
		}
		return s.VirtualAPI.Create(ctx, want)
	case equality.Semantic.DeepEqual(have.Data, want.Data):
		return nil
	default:
		have.Data = maps.Clone(want.Data)
		return s.VirtualAPI.Update(ctx, have)
	}
}

// typeOf returns the type of the copy of a Secret. Some types mean something to the space's own controllers.
func typeOf(host *corev1.Secret) corev1.SecretType {
	switch host.Type {
	case corev1.SecretTypeTLS, corev1.SecretTypeBasicAuth, corev1.SecretTypeSSHAuth, corev1.SecretTypeDockerConfigJson, corev1.SecretTypeDockercfg:
		return host.Type
	default:
		return corev1.SecretTypeOpaque
	}
}

// deleteReturned deletes Secrets on the host that returned for an object that is no longer there, or that names others now, unless another
// object names them.
func (s *syncer) deleteReturned(ctx context.Context, names []string) error {
	var errs []error
	for _, name := range names {
		if !strings.HasPrefix(name, s.Space.Name+declaration.ReturnedMark) || s.isReturned(name) {
			continue
		}
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: s.Space.HostNamespace(), Name: name}}
		// Nothing tells before the next start that it is still there.
		err := retry.OnError(retry.DefaultBackoff, func(error) bool { return ctx.Err() == nil }, func() error {
			return client.IgnoreNotFound(s.Writer.Client.Delete(ctx, secret))
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("delete a Secret that returned from the host: %w", err))
		}
	}
	return errors.Join(errs...)
}

// isReturned reports whether an object of the space names the Secret with this name on the host.
func (s *syncer) isReturned(name string) bool {
	for _, sent := range s.sent {
		if keys, err := sent.virtual.GetIndexer().IndexKeys(indexReturned, name); err == nil && len(keys) > 0 {
			return true
		}
	}
	return false
}

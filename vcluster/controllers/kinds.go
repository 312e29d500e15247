// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"errors"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/metadata"
)

// maxTold is how many bytes are kept of what a tenant's server says of one kind.
const maxTold = 1 << 10

// foreignKinds is for a controller that goes through all kinds, and until it is at the
// end keeps what went wrong and what holds objects up: of kinds that pods serve, of
// which there may be thousands, it is told little. What a kind can't do it would
// remember for good, by a name that changes as the server likes; so it can all of it.
type foreignKinds struct {
	metadata.Interface
	aggregated func(groupVersion string) bool
}

func (f foreignKinds) Resource(r schema.GroupVersionResource) metadata.Getter {
	all := f.Interface.Resource(r)
	if !f.aggregated(r.GroupVersion().String()) {
		return all
	}
	return foreignKind{all, foreignObjects{all}}
}

type foreignKind struct {
	all metadata.Getter
	foreignObjects
}

func (k foreignKind) Namespace(name string) metadata.ResourceInterface {
	return foreignObjects{k.all.Namespace(name)}
}

type foreignObjects struct{ metadata.ResourceInterface }

func (o foreignObjects) Delete(ctx context.Context, name string, options metav1.DeleteOptions, subresources ...string) error {
	return told(o.ResourceInterface.Delete(ctx, name, options, subresources...))
}

// DeleteCollection deletes one by one what can't be deleted together.
func (o foreignObjects) DeleteCollection(ctx context.Context, options metav1.DeleteOptions, which metav1.ListOptions) error {
	err := o.ResourceInterface.DeleteCollection(ctx, options, which)
	if !lacking(err) {
		return told(err)
	}
	list, err := o.List(ctx, which)
	if err != nil {
		return err
	}
	for i := range list.Items {
		if err := o.Delete(ctx, list.Items[i].Name, options); err != nil && !lacking(err) {
			return err
		}
	}
	return nil
}

// List has none of what can't be listed, and of the finalizers those that are few.
func (o foreignObjects) List(ctx context.Context, which metav1.ListOptions) (*metav1.PartialObjectMetadataList, error) {
	list, err := o.ResourceInterface.List(ctx, which)
	if lacking(err) {
		return &metav1.PartialObjectMetadataList{}, nil
	}
	if err != nil {
		return nil, told(err)
	}
	left, known := maxTold, map[string]bool{}
	for i := range list.Items {
		list.Items[i].Finalizers = slices.DeleteFunc(list.Items[i].Finalizers, func(f string) bool {
			if !known[f] && len(f) <= left {
				left -= len(f)
				known[f] = true
			}
			return !known[f]
		})
	}
	return list, nil
}

// lacking tells whether there is no such kind, or it can't do that.
func lacking(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err)
}

// told is what is kept of an error.
func told(err error) error {
	if err == nil {
		return nil
	}
	short := func(s string) string {
		return strings.ToValidUTF8(strings.Clone(s[:min(len(s), maxTold/4)]), "")
	}
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		s := status.Status()
		return &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: s.Code, Reason: metav1.StatusReason(short(string(s.Reason))), Message: short(s.Message),
		}}
	}
	return errors.New(short(err.Error()))
}

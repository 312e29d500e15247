// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package crdshares

import (
	"context"
	"errors"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/platform/hostwatch"
	"github.com/berth-dev/berth/vcluster/schemas"
)

// What is listed.
const (
	listOfShares      = "shares"
	listOfDefinitions = "definitions"
)

// watchShares watches the shares until ctx ends.
func (s *Shares) watchShares(ctx context.Context, host client.WithWatch) {
	hostwatch.Objects(ctx, host, "shared definitions", &v1alpha1.CRDShare{}, func() client.ObjectList { return &v1alpha1.CRDShareList{} },
		&hostwatch.Store[*v1alpha1.CRDShare, *v1alpha1.CRDShare]{
			Value: func(share *v1alpha1.CRDShare) *v1alpha1.CRDShare { return share },
			Change: func(listed bool, change func(map[string]*v1alpha1.CRDShare)) {
				s.watched(listed, listOfShares, func() { change(s.shares) })
			},
		})
}

// watchDefinitions watches the metadata of the host's definitions until ctx ends.
func (s *Shares) watchDefinitions(ctx context.Context, host client.WithWatch) {
	hostwatch.Definitions(ctx, host, "definitions to share", &hostwatch.Store[*metav1.PartialObjectMetadata, string]{
		Value: func(definition *metav1.PartialObjectMetadata) string { return definition.ResourceVersion },
		Change: func(listed bool, change func(map[string]string)) {
			s.watched(listed, listOfDefinitions, func() { change(s.versions) })
		},
	})
}

// watched changes what is watched.
func (s *Shares) watched(listed bool, list string, change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
	s.listed[list] = s.listed[list] || listed
	s.note()
}

// serve reads a definition of the host. version is the one that was watched; "" if the host has none.
func serve(ctx context.Context, host client.Client, share *v1alpha1.CRDShare, version string) *served {
	result := &served{version: version, share: string(share.UID)}
	notFound := func() *served {
		result.reason = v1alpha1.ReasonDefinitionNotFound
		result.message = fmt.Sprintf("metadata.name: the host has no CustomResourceDefinition %s; create it, or delete this share", share.Name)
		return result
	}
	if version == "" {
		return notFound()
	}
	definition := &apiextensionsv1.CustomResourceDefinition{}
	if err := host.Get(ctx, client.ObjectKey{Name: share.Name}, definition); apierrors.IsNotFound(err) {
		return notFound()
	} else if err != nil {
		result.reason, result.message = v1alpha1.ReasonDefinitionUnavailable, fmt.Sprintf("read the CustomResourceDefinition: %v; Berth retries", err)
		return result
	}
	result.version = definition.ResourceVersion // it may be newer than what was watched
	var crd *apiextensionsv1.CustomResourceDefinition
	stored, err := record(ctx, host, share, definitions.StorageVersion(definition))
	if err == nil {
		result.stored = stored
		crd, err = definitions.Serve(definition, share.Name, stored...)
	}
	if err == nil {
		err = checkSchemas(crd)
	}
	switch {
	case errors.Is(err, definitions.ErrUnsupported):
		result.reason, result.message = v1alpha1.ReasonDefinitionUnsupported, err.Error()
	case err != nil:
		result.reason, result.message = v1alpha1.ReasonDefinitionUnavailable, err.Error()
	default:
		result.offer(crd, definitions.WebhookOf(definition))
	}
	return result
}

func checkSchemas(crd *apiextensionsv1.CustomResourceDefinition) error {
	if err := schemas.CheckShared(crd); err != nil {
		return fmt.Errorf("%s: %w: %w", crd.Name, definitions.ErrUnsupported, err)
	}
	return nil
}

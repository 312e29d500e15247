// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset/typed/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// establish establishes CustomResourceDefinitions that an earlier run has stopped at: their names were accepted, and that was all. Upstream
// establishes a definition when it sees the change by which its names are accepted. After a restart, it sees none until it reads all
// definitions again, which takes five minutes.
func (p *ControlPlane) establish(ctx context.Context) error {
	all, err := p.chain.crds.Lister().List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list definitions: %w", err)
	}
	var client *apiextensions.ApiextensionsV1Client
	var errs []error
	for _, crd := range all {
		if !apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.NamesAccepted) || apihelpers.IsCRDConditionTrue(crd, apiextensionsv1.Established) || crd.DeletionTimestamp != nil {
			continue
		}
		if client == nil {
			if client, err = apiextensions.NewForConfig(p.client); err != nil {
				return fmt.Errorf("make client for definitions: %w", err)
			}
		}
		established := crd.DeepCopy()
		apihelpers.SetCRDCondition(established, apiextensionsv1.CustomResourceDefinitionCondition{ // as upstream's establishing controller does
			Type: apiextensionsv1.Established, Status: apiextensionsv1.ConditionTrue, Reason: "InitialNamesAccepted", Message: "the initial names have been accepted",
		})
		_, err := client.CustomResourceDefinitions().UpdateStatus(ctx, established, metav1.UpdateOptions{})
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) { // it has changed, which upstream sees
			errs = append(errs, fmt.Errorf("establish definition %s: %w", crd.Name, err))
		}
	}
	return errors.Join(errs...)
}

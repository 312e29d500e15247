// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package publication

import (
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// DefaultName is the name of the Publication that exists from the start.
const DefaultName = "cluster-roles"

// Default returns the Publication that exists from the start: it copies the ClusterRoles that an admin marks by the label
// berth.dev/publish=true to all spaces. Who creates it must not do so again after an admin deleted it.
func Default() *v1alpha1.Publication {
	return &v1alpha1.Publication{
		ObjectMeta: metav1.ObjectMeta{Name: DefaultName},
		Spec:       v1alpha1.PublicationSpec{Sources: []v1alpha1.PublicationSource{{APIVersion: rbacv1.SchemeGroupVersion.String(), Kind: "ClusterRole"}}},
	}
}

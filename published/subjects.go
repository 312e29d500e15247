// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package published

import (
	"encoding/json"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/published/expression"
)

// SubjectsOf returns what the expressions of fields know of a space and its tenant. The operator has written the labels of the
// tenant into an annotation of the Space, because platforms don't read Tenants.
func SubjectsOf(object *v1alpha1.Space) (tenant, space expression.Subject) {
	tenant, space = expression.Subject{Name: object.Spec.TenantName}, expression.Subject{Name: object.Name, Labels: object.Labels}
	if text := object.Annotations[v1alpha1.AnnotationTenantLabels]; text != "" && tenant.Name != "" {
		if json.Unmarshal([]byte(text), &tenant.Labels) != nil {
			tenant.Labels = nil // somebody else wrote it; the operator is about to write it again
		}
	}
	return tenant, space
}

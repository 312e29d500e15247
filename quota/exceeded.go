// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// Exceeded is the error of a request that a quota doesn't allow. Its message reads like upstream's.
type Exceeded struct {
	// Tenant is whose quota it is, and Space the space if it is the quota of the space itself.
	Tenant, Space string
	// Requested, Used, and Limited have the resources that there is not enough of. Used is without what was requested.
	Requested, Used, Limited Amounts
	// Above says that it is the quota of a tenant above that doesn't allow it.
	Above bool
}

func (e *Exceeded) Error() string {
	of := "tenant " + e.Tenant
	if e.Space != "" {
		of = "space " + e.Space
	}
	text := fmt.Sprintf("exceeded quota: %s, requested: %s, used: %s, limited: %s", of, format(e.Requested), format(e.Used), format(e.Limited))
	if e.Above {
		text += "; the tenants above leave no more of their quota"
	}
	return text
}

// Only returns the error with one of the resources.
func (e *Exceeded) Only(name corev1.ResourceName) *Exceeded {
	one := Amounts{name: e.Limited[name]}
	return &Exceeded{Tenant: e.Tenant, Space: e.Space, Requested: only(e.Requested, one), Used: only(e.Used, one), Limited: one, Above: e.Above}
}

// IsExceeded reports whether an error is that a quota doesn't allow a request.
func IsExceeded(err error) bool {
	var exceeded *Exceeded
	return errors.As(err, &exceeded)
}

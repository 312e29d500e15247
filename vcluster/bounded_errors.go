// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"errors"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/berth-dev/berth/bounds"
)

// retrySeconds is when a client whose request found no place may try again.
const retrySeconds = 1

var noResource = schema.GroupResource{} //nolint:gochecknoglobals // Does not change.

// asStatus makes of a [bounds.ExceededError] what clients understand: that they may try again in a moment, that they must
// ask for less, or that the space is full. Other errors stay as they are.
func asStatus(err error, resource schema.GroupResource, name string) error {
	var exceeded *bounds.ExceededError
	if !errors.As(err, &exceeded) {
		return err
	}
	switch exceeded.Quantity {
	case bounds.MemoryBytes, bounds.WatchBytes, bounds.Watches:
		if exceeded.Alone {
			return apierrors.NewRequestEntityTooLargeError(exceeded.Error())
		}
		return apierrors.NewTooManyRequests(exceeded.Error(), retrySeconds)
	}
	return apierrors.NewForbidden(resource, name, exceeded)
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package refusal

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/berth-dev/berth/bounds"
)

// RetrySeconds is when a client whose request found no place may try again.
const RetrySeconds = 1

// NoResource is for errors about a request rather than an object.
var NoResource = schema.GroupResource{} //nolint:gochecknoglobals // Does not change.

// Status makes of a [bounds.ExceededError] what clients understand: that they may try again in a moment, that they must
// ask for less, or that the space is full. Other errors stay as they are.
func Status(err error, resource schema.GroupResource, name string) error {
	var exceeded *bounds.ExceededError
	if !errors.As(err, &exceeded) {
		return err
	}
	switch exceeded.Quantity {
	case bounds.MemoryBytes, bounds.WatchBytes, bounds.Watches:
		if exceeded.Alone {
			return apierrors.NewRequestEntityTooLargeError(exceeded.Error())
		}
		return apierrors.NewTooManyRequests(exceeded.Error(), RetrySeconds)
	}
	return apierrors.NewForbidden(resource, name, exceeded)
}

// Serve answers that something that is not an object can't be had.
func Serve(w http.ResponseWriter, r *http.Request, err error) {
	code := http.StatusInternalServerError
	var status *apierrors.StatusError
	switch {
	case context.Cause(r.Context()) != nil:
		code = http.StatusServiceUnavailable
	case errors.As(err, &status):
		code = int(status.ErrStatus.Code)
		if seconds, again := apierrors.SuggestsClientDelay(err); again {
			w.Header().Set("Retry-After", strconv.Itoa(seconds))
		}
	}
	http.Error(w, err.Error(), code)
}

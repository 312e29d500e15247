// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"errors"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/translate/pod"
)

// Reasons of the events that tell a tenant why an object is not on the host, or
// not as it was. docs/reference/events.md says what to do about each.
const (
	ReasonQuota   = "HostQuotaExceeded"
	ReasonRefused = "HostRefused"
	ReasonForbids = "SpaceForbids"
	ReasonTaken   = "HostNameTaken"
	ReasonDropped = "HostDropped"         // it is there, but for some fields
	ReasonNoLinks = "ServiceLinksLeftOut" // it is there, but for some environment variables
	ReasonLost    = "ClaimLost"
)

// errRefused says that the tenant was told why its object is not on the host.
var errRefused = errors.New("refused")

// errForeign says that a host name is taken by an object that is not ours.
var errForeign = errors.New("host name taken")

// forbidden is what the space's own rules say against an object. Admission in
// the space says it first; here it is refused once more.
type forbidden struct{ error }

func forbids(errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return forbidden{errs.ToAggregate()}
}

// refusal is an answer of the host's in words for the tenant.
type refusal struct{ reason, message string }

// QuotaExceeded reports whether the host refused an object for a quota: upstream
// says it in words alone.
func QuotaExceeded(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota")
}

// explain turns an error of the host's API into a refusal; told is false for
// errors that are not about the object (the host is down, the watch lags).
func (s *Engine) explain(v client.Object, err error) (r refusal, told bool) {
	message := err.Error()
	switch {
	case errors.As(err, &forbidden{}), errors.Is(err, bounds.ErrExceeded):
		return refusal{ReasonForbids, message}, true
	case errors.Is(err, errForeign):
		return refusal{ReasonTaken, message}, true
	case QuotaExceeded(err):
		r.reason = ReasonQuota
	case apierrors.HasStatusCause(err, "NodeCapacity"): // upstream's PodResizeValidator, which tells what the node has
		return refusal{ReasonRefused, "the pod's new resources do not fit where it runs; ask for less, or make the pod anew"}, true
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		r.reason = ReasonRefused
	default:
		return refusal{}, false
	}
	// `pods "demo--default--web" is forbidden: exceeded quota: ...`
	if _, after, found := strings.Cut(message, " is forbidden: "); found {
		message = after
	}
	var nodes [][2]string
	if s.namedNodes != nil {
		nodes = s.namedNodes(v)
	}
	r.message = pod.ScrubNames(s.space, message, v, nodes...)
	return r, true
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

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

// ErrForeign says that a host name is taken by an object that is not ours.
var ErrForeign = errors.New("host name taken")

// Forbidden is what the space's own rules say against an object. Admission in
// the space says it first; here it is refused once more.
type Forbidden struct{ error }

// Forbid returns a [Forbidden] error if the space's rules say something against an object, else nil.
func Forbid(errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return Forbidden{errs.ToAggregate()}
}

// Refusal is an answer of the host's in words for the tenant.
type Refusal struct{ Reason, Message string }

// QuotaExceeded reports whether the host refused an object for a quota: upstream
// says it in words alone.
func QuotaExceeded(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota")
}

// Explain turns an error of the host's API into a refusal; told is false for
// errors that are not about the object (the host is down, the watch lags).
func (s *Engine) Explain(v client.Object, err error) (r Refusal, told bool) {
	message := err.Error()
	switch {
	case errors.As(err, &Forbidden{}), errors.Is(err, bounds.ErrExceeded):
		return Refusal{ReasonForbids, message}, true
	case errors.Is(err, ErrForeign):
		return Refusal{ReasonTaken, message}, true
	case QuotaExceeded(err):
		r.Reason = ReasonQuota
	case apierrors.HasStatusCause(err, "NodeCapacity"): // upstream's PodResizeValidator, which tells what the node has
		return Refusal{ReasonRefused, "the pod's new resources do not fit on its node; request less, or delete the pod and create it again"}, true
	case apierrors.IsForbidden(err), apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		r.Reason = ReasonRefused
	default:
		return Refusal{}, false
	}
	// `pods "demo--default--web" is forbidden: exceeded quota: ...`
	if _, after, found := strings.Cut(message, " is forbidden: "); found {
		message = after
	}
	var nodes [][2]string
	if s.NamedNodes != nil {
		nodes = s.NamedNodes(v)
	}
	r.Message = pod.ScrubNames(s.Space, message, v, nodes...)
	return r, true
}

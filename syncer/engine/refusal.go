// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/translate/pod"
)

// These are the reasons of events that tell a tenant why an object is not on the host, or was changed.
// docs/reference/events.md says what to do about each.
const (
	ReasonQuota   = "HostQuotaExceeded"
	ReasonRefused = "HostRefused"
	ReasonForbids = "SpaceForbids"
	ReasonTaken   = "HostNameTaken"
	ReasonDropped = "HostDropped"         // it is on the host, without some fields
	ReasonNoLinks = "ServiceLinksLeftOut" // it is on the host, without some environment variables
	ReasonLost    = "ClaimLost"
)

// errRefused means that the object was rejected, and that the tenant has been told.
var errRefused = errors.New("refused")

// ErrForeign means that a name on the host is taken by an object that is not Berth's.
var ErrForeign = errors.New("host name taken")

// Forbidden is an error of the space's own rules. Admission in the space returns it first; the syncer checks again.
type Forbidden struct{ error }

// Forbids returns a [Forbidden] error.
func Forbids(err error) error { return Forbidden{err} }

// Forbid returns a [Forbidden] error if there are errors, and otherwise nil.
func Forbid(errs field.ErrorList) error {
	if len(errs) == 0 {
		return nil
	}
	return Forbidden{errs.ToAggregate()}
}

// Refusal is an error of the host, in words for the tenant.
type Refusal struct{ Reason, Message string }

// QuotaExceeded reports whether the host rejected an object because of a quota. Upstream says so only in the message.
func QuotaExceeded(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota")
}

// spaceQuota is how the host's errors name the quota of a space.
const spaceQuota = "exceeded quota: berth, requested: "

// tellShort tells what was requested, if the quota of the space did not allow an object.
func (s *Engine) tellShort(err error) {
	if s.quotaShort == nil || !QuotaExceeded(err) {
		return
	}
	_, after, found := strings.Cut(err.Error(), spaceQuota)
	if !found {
		return // it is a quota of an admin's own
	}
	list, _, _ := strings.Cut(after, ", used: ")
	requested := corev1.ResourceList{}
	for pair := range strings.SplitSeq(list, ",") {
		name, amount, _ := strings.Cut(pair, "=")
		quantity, err := resource.ParseQuantity(amount)
		if err != nil {
			return
		}
		requested[corev1.ResourceName(name)] = quantity
	}
	s.quotaShort(requested)
}

// Refuse reports to the tenant why the host, or a rule of the space, rejects what is made of v. It returns the error for work of
// the engine: what was rejected is tried again later, and need not wake the space. Other errors are returned.
func (s *Engine) Refuse(v client.Object, err error) error {
	r, told := s.Explain(v, err)
	if !told {
		return fmt.Errorf("sync %s %s: %w", v.GetNamespace(), v.GetName(), err)
	}
	s.Recorder.Record(v, corev1.EventTypeWarning, r.Reason, brief(r.Message))
	return errRefused
}

// Explain turns an error of the host's API into a refusal. told is false for errors that are not about the object, such
// as an unreachable host or a watch that is behind.
func (s *Engine) Explain(v client.Object, err error) (r Refusal, told bool) {
	message := err.Error()
	switch {
	case errors.As(err, &Forbidden{}), errors.Is(err, bounds.ErrExceeded):
		return Refusal{ReasonForbids, message}, true
	case errors.Is(err, ErrForeign):
		return Refusal{ReasonTaken, message}, true
	case QuotaExceeded(err):
		r.Reason = ReasonQuota
	case apierrors.HasStatusCause(err, "NodeCapacity"): // upstream's PodResizeValidator, whose message has the resources of the node
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

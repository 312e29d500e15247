// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcesyncs

import (
	"context"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/syncer/declaration"
)

// subject is what a check was about. If that is still the same, the check needn't be repeated.
type subject struct {
	uid           types.UID
	generation    int64
	definition    string // the resource version of the host's definition; "" if the host has none
	forced, known bool   // see Options.Forces
	missing       string // a ResourceSync whose objects it names, and that isn't there
}

// missing returns the first ResourceSync with direction FromHost whose objects another one names, and that isn't there.
func missing(sync *v1alpha1.ResourceSync, syncs map[string]*v1alpha1.ResourceSync) string {
	for i := range sync.Spec.Fields {
		f := &sync.Spec.Fields[i]
		if other := syncs[f.Resource]; f.Type == v1alpha1.FieldImported && (other == nil || other.Spec.Direction != v1alpha1.SyncFromHost) {
			return f.Resource
		}
	}
	return ""
}

// state is what became of a ResourceSync.
type state struct {
	of   subject
	next time.Time // when it is checked again

	// checked is what its spec says, if there is no problem.
	checked *declaration.Declaration
	problem problem
	// inForce is what spaces have: checked once the host's objects are known; until then, what they had before.
	inForce *declaration.Declaration
	watched *declaration.Declaration // whose objects the host has to give; nil if there is none
	unready error                    // why checked isn't in force
}

// problem is why a ResourceSync has no declaration.
type problem struct {
	reason, message string
	passing         bool // it is one of the host, and says nothing about the ResourceSync
}

// checkOne checks a ResourceSync. It writes nothing but what Secure does.
func (s *Syncs) checkOne(ctx context.Context, host client.Client, sync *v1alpha1.ResourceSync, of subject) *state {
	is := &state{of: of}
	fail := func(passing bool, reason, format string, args ...any) *state {
		is.problem = problem{reason: reason, message: fmt.Sprintf(format, args...), passing: passing}
		return is
	}
	notFound := func() *state {
		return fail(false, v1alpha1.ReasonDefinitionNotFound,
			"metadata.name: the host has no CustomResourceDefinition %s; create it, or delete this ResourceSync", sync.Name)
	}
	if of.definition == "" {
		return notFound()
	}
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := host.Get(ctx, client.ObjectKey{Name: sync.Name}, crd); apierrors.IsNotFound(err) {
		return notFound()
	} else if err != nil {
		return fail(true, v1alpha1.ReasonDefinitionUnavailable, "read the CustomResourceDefinition: %v; Berth retries", err)
	}
	is.of.definition = crd.ResourceVersion // it may be newer than what was watched
	d, errs := declaration.Compile(sync, crd)
	switch {
	case len(errs) > 0:
		return fail(false, v1alpha1.ReasonInvalidSpec, "%v", errs.ToAggregate())
	case of.missing != "":
		return fail(true, v1alpha1.ReasonInvalidSpec, "spec.fields: there is no ResourceSync %s with direction FromHost, whose objects a field of type Imported names; create it, or remove the field", of.missing)
	case !of.known:
		return fail(true, v1alpha1.ReasonDefinitionUnavailable, "the CRDShare %s was not read yet; Berth retries", sync.Name)
	case !of.forced:
		return fail(false, v1alpha1.ReasonNotShared,
			"metadata.name: no CRDShare %s with mode Forced shares the definition; create one, with the same tenants", sync.Name)
	case d.FromHost:
		is.checked = d
		return is
	case s.options.Secure == nil:
		return fail(false, v1alpha1.ReasonPolicyMissing, "spec.direction: this platform can't sync to the host; use FromHost")
	}
	if err := s.options.Secure(ctx, d); err != nil {
		return fail(!s.options.Missing(err), v1alpha1.ReasonPolicyMissing, "%v", err)
	}
	is.checked = d
	return is
}

// after completes a state by the one before it, and says when to check again. watch numbers what is watched anew.
func (is *state) after(before *state, now time.Time, watch func() uint64) *state {
	is.next = now.Add(recheck)
	if is.problem.reason == v1alpha1.ReasonPolicyMissing || is.problem.passing {
		is.next = now.Add(retry)
	}
	if before == nil || before.of.uid != is.of.uid {
		before = &state{}
	}
	switch {
	case is.checked != nil:
		// What says the same as before is the same: spaces don't switch. What was in force earlier isn't, because the host's watch is another.
		if was := before.watched; was != nil && was.Version == is.checked.Version {
			is.checked = was
		} else {
			is.checked.Watch = watch()
		}
		is.inForce, is.watched = before.inForce, is.checked
	case is.problem.passing:
		is.inForce, is.watched = before.inForce, before.watched
	}
	return is
}

// unsettled reports whether spaces don't have yet what the spec says, and may soon.
func (is *state) unsettled() bool {
	return is.problem.passing || is.checked != is.inForce
}

// pause returns when a state may be another one, though nothing tells.
func (is *state) pause(now time.Time) time.Duration {
	if is.checked != nil && is.checked != is.inForce {
		return pollInterval
	}
	return max(is.next.Sub(now), time.Millisecond)
}

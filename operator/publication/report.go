// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package publication

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/published"
	"github.com/berth-dev/berth/published/expression"
)

const (
	// maxProblems limits how many problems a condition names.
	maxProblems = 10
	// maxMessage limits the message of a condition.
	maxMessage = 4 << 10
	// maxTrials limits how many copies are rendered to find out whether that works.
	maxTrials = 500
)

// report writes the status of a publication.
func (r *reconciler) report(ctx context.Context, publication *v1alpha1.Publication, found *outcome) error {
	list := &v1alpha1.SpaceList{}
	if err := r.client.List(ctx, list, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list Spaces: %w", err)
	}
	var spaces []*v1alpha1.Space
	for i := range list.Items {
		if slices.Contains(list.Items[i].Spec.Publications, publication.Name) {
			spaces = append(spaces, &list.Items[i])
		}
	}
	problems := found.problems
	if _, err := tenantsOf(publication); err != nil {
		problems = append(problems, *invalid("spec.tenants: %v", err))
	}
	full, err := r.full(ctx, publication, list.Items)
	if err != nil {
		return err
	}
	if full > 0 {
		problems = append(problems, problem{v1alpha1.ReasonTooManyPublications, fmt.Sprintf(
			"%d spaces of selected tenants have %d publications already, the most that a space may have", full, MaxPublications)})
	}
	problems = append(problems, trials(ctx, found, spaces)...)
	changed := publication.DeepCopy()
	changed.Status.ObservedGeneration = publication.Generation
	changed.Status.Objects, changed.Status.Spaces = ptr.To(int32(len(found.objects)+found.kept)), ptr.To(int32(len(spaces))) //nolint:gosec // both are small
	ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPublished, ObservedGeneration: publication.Generation}
	if len(problems) > 0 {
		ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, worst(problems).reason, message(problems)
	}
	meta.SetStatusCondition(&changed.Status.Conditions, ready)
	if equality.Semantic.DeepEqual(publication.Status, changed.Status) {
		return nil
	}
	if err := r.client.Status().Patch(ctx, changed, client.MergeFrom(publication)); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write status of Publication %s: %w", publication.Name, err)
	}
	return nil
}

// trials renders copies for some of the spaces, and returns the problems of fields, each once.
func trials(ctx context.Context, found *outcome, spaces []*v1alpha1.Space) (problems []problem) {
	if !found.valid || len(found.fields) == 0 {
		return nil
	}
	seen, left := map[string]bool{}, maxTrials
	for _, space := range spaces {
		tenant, subject := published.SubjectsOf(space)
		for _, object := range found.objects {
			if left--; left < 0 || ctx.Err() != nil {
				return problems
			}
			var source, copied map[string]any
			if json.Unmarshal(object.content, &source) != nil || json.Unmarshal(object.content, &copied) != nil {
				continue
			}
			err := found.fields.Render(ctx, copied, expression.Input{Tenant: tenant, Space: subject, Object: source})
			if err == nil || seen[err.Error()] {
				continue
			}
			seen[err.Error()] = true
			problems = append(problems, problem{v1alpha1.ReasonFieldsFailed, fmt.Sprintf("%s, in %s for space %s", err, object, space.Name)})
		}
	}
	return problems
}

// message returns the problems as the message of a condition.
func message(problems []problem) string {
	var parts []string
	for _, p := range problems {
		parts = append(parts, p.message)
	}
	if more := len(parts) - maxProblems; more > 0 {
		parts = append(parts[:maxProblems], fmt.Sprintf("and %d more", more))
	}
	text := strings.Join(parts, "; ")
	if len(text) > maxMessage {
		text = strings.ToValidUTF8(text[:maxMessage], "") + "..."
	}
	return text
}

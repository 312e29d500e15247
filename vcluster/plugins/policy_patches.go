// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
	"github.com/google/cel-go/common/types/traits"
	"google.golang.org/protobuf/types/known/structpb"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	patchtypes "k8s.io/apimachinery/pkg/types"
	"k8s.io/apiserver/pkg/admission"
	plugincel "k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/cel/mutation"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/expressions"
	"github.com/berth-dev/berth/vcluster/patches"
	"github.com/berth-dev/berth/vcluster/quantities"
	"github.com/berth-dev/berth/vcluster/refusal"
)

// policyPatches counts the steps that patches of policies take for one request. A policy can have many mutations, and a space many
// policies.
type policyPatches struct{ steps int64 }

type policyPatchesKey struct{}

func withPolicyPatches(ctx context.Context) context.Context {
	return context.WithValue(ctx, policyPatchesKey{}, &policyPatches{})
}

// boundedPatch is an expression of a MutatingAdmissionPolicy that makes a patch. What it makes is checked before it is applied, which
// nothing interrupts.
type boundedPatch struct {
	plugincel.MutatingEvaluator
}

func (b boundedPatch) ForInput(
	ctx context.Context, a *admission.VersionedAttributes, request *admissionv1.AdmissionRequest,
	variables plugincel.OptionalVariableBindings, namespace *corev1.Namespace, budget int64,
) (plugincel.EvaluationResult, int64, error) {
	kept, end := keepValues(ctx)
	defer end()
	result, left, err := b.MutatingEvaluator.ForInput(kept, a, request, variables, namespace, budget)
	if err != nil || result.Error != nil {
		return result, left, err
	}
	if err := admitPolicyPatch(ctx, a, result.EvalResult); err != nil {
		return plugincel.EvaluationResult{}, -1, err
	}
	return result, left, nil
}

// patchCopies is how many times its size a patch takes in memory: as protobuf values, and as JSON or as a typed object.
const patchCopies = 12

// admitPolicyPatch refuses a patch that is too large, or takes too long to apply, and takes the memory for it from the request's
// reservation.
func admitPolicyPatch(ctx context.Context, a *admission.VersionedAttributes, made ref.Val) error {
	resource := a.GetResource().GroupResource()
	size := expressions.Bytes(made)
	if err := bounds.ExpressionBytes.Check(size); err != nil {
		return fmt.Errorf("check the policy's patch: %w", err)
	}
	reservation := bounds.ReservationOf(ctx)
	if err := reservation.Grow(patchCopies * size); err != nil {
		return refusal.Status(err, resource, a.GetName())
	}
	patched := a.VersionedObject.Object()
	if patched == nil {
		return nil
	}
	object := reflect.TypeOf(patched)
	operations, ok := made.(traits.Lister)
	if !ok { // an apply configuration, which is merged once
		text, err := json.Marshal(made.Value())
		if err != nil {
			return fmt.Errorf("encode the policy's apply configuration: %w", err)
		}
		return quantities.CheckDocument(text, object)
	}
	text := jsonPatch(operations)
	if err := quantities.TypeOf(object).CheckPatch(text); err != nil {
		return fmt.Errorf("check the policy's JSON patch: %w", err)
	}
	patch, shape := patches.New(patchtypes.JSONPatchType), patches.ShapeOf(patched)
	patch.Add(text)
	all, _ := ctx.Value(policyPatchesKey{}).(*policyPatches)
	if all == nil {
		all = &policyPatches{}
	}
	all.steps += patch.Steps(shape)
	if err := bounds.PatchSteps.Check(all.steps); err != nil {
		return fmt.Errorf("apply the policies' JSON patches: %w", err)
	}
	return refusal.Status(reservation.Grow(patch.Memory(shape)), resource, a.GetName())
}

// jsonPatch is the text of a JSON patch, as far as it is one: upstream refuses what is not.
func jsonPatch(operations traits.Lister) []byte {
	text := []byte("[")
	for i := operations.Iterator(); i.HasNext() == types.True; {
		o, ok := i.Next().(*mutation.JSONPatchVal)
		if !ok {
			continue
		}
		members := map[string]any{"op": o.Op, "path": o.Path}
		if o.From != "" {
			members["from"] = o.From
		}
		if o.Val != nil {
			members["value"], _ = o.Val.ConvertToNative(reflect.TypeFor[*structpb.Value]())
		}
		operation, err := json.Marshal(members)
		if err != nil {
			continue
		}
		text = append(append(text, operation...), ',')
	}
	return append(text[:max(1, len(text)-1)], ']')
}

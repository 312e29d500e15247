// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package patches

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/berth-dev/berth/published/expression"
	"github.com/berth-dev/berth/published/fieldpath"
)

// timeout limits the time in which the patches of one pod are applied. What expressions cost is limited, too, and ends almost all earlier.
const timeout = 500 * time.Millisecond

// maxCost is what the patches of one pod may cost that are applied at once.
const maxCost = 10 * expression.CostLimit

// Patches are the compiled patches of a space. They are safe for concurrent use. Nil has none.
type Patches struct{ list []patch }

type patch struct {
	name    string
	path    fieldpath.Path
	kind    kind
	program *expression.Program
}

// Pod is a pod of a space.
type Pod struct {
	// Tenant is empty for a space without a tenant.
	Tenant, Space string
	// Source is the pod in the space. It is not changed.
	Source *corev1.Pod
}

// Error is why a pod could not be patched. It is for the tenant, who can't see the patch, and for the admin.
type Error struct {
	patch string
	err   error
}

func (e *Error) Error() string {
	return fmt.Sprintf("the platform's patch %q can't be applied: %v; ask the admin of the platform", e.patch, e.err)
}

func (e *Error) Unwrap() error { return e.err }

// Any sets, in a host pod that is wanted, the fields that may change later. The error is an [*Error], or that of ctx.
func (p *Patches) Any(ctx context.Context, of Pod, host *corev1.Pod) error {
	return p.apply(ctx, of, host, func(k kind) bool { return k != ofNew })
}

// New sets, in a host pod that is about to be created, the fields that can't change later. The error is as that of [Patches.Any].
func (p *Patches) New(ctx context.Context, of Pod, host *corev1.Pod) error {
	return p.apply(ctx, of, host, func(k kind) bool { return k == ofNew })
}

// Labels sets the labels of a host pod. The error is as that of [Patches.Any].
func (p *Patches) Labels(ctx context.Context, of Pod, host *corev1.Pod) error {
	return p.apply(ctx, of, host, func(k kind) bool { return k == label })
}

// KeepLabels gives the labels that patches set the values that a host pod has, for when a patch fails.
func (p *Patches) KeepLabels(labels, has map[string]string) {
	for _, one := range p.list {
		if one.kind != label {
			continue
		}
		key := one.path.Name(2)
		if value, ok := has[key]; ok {
			labels[key] = value
		} else {
			delete(labels, key)
		}
	}
}

func (p *Patches) apply(ctx context.Context, of Pod, host *corev1.Pod, concerns func(kind) bool) error {
	if p == nil {
		return nil
	}
	var list []patch
	for _, one := range p.list {
		if concerns(one.kind) {
			list = append(list, one)
		}
	}
	if len(list) == 0 {
		return nil
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(host)
	if err != nil {
		return fmt.Errorf("convert a host pod: %w", err)
	}
	source, err := runtime.DefaultUnstructuredConverter.ToUnstructured(of.Source)
	if err != nil {
		return fmt.Errorf("convert a pod: %w", err)
	}
	// A tenant writes its status at will, and the others change with that. An image made from them would restart containers again and again.
	for _, field := range [][]string{{"status"}, {"metadata", "resourceVersion"}, {"metadata", "generation"}, {"metadata", "managedFields"}} {
		unstructured.RemoveNestedField(source, field...)
	}
	unstructured.RemoveNestedField(source, "spec", "nodeName")
	limited, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	input := expression.Input{Tenant: expression.Subject{Name: of.Tenant}, Space: expression.Subject{Name: of.Space}, Object: source}
	budget := expression.NewBudget(maxCost)
	for _, one := range list {
		if err := one.apply(limited, object, input, budget); err != nil {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			return &Error{patch: one.name, err: err}
		}
	}
	patched, err := decode(object)
	if err != nil {
		return &Error{patch: names(list), err: err}
	}
	for key, value := range patched.Labels {
		if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
			return &Error{patch: names(list), err: fmt.Errorf("%q is no value of the label %s: %s", value, key, strings.Join(problems, "; "))}
		}
	}
	*host = *patched
	return nil
}

func names(list []patch) string {
	all := make([]string, len(list))
	for i, one := range list {
		all[i] = one.name
	}
	return strings.Join(all, ", ")
}

func (p patch) apply(ctx context.Context, object map[string]any, input expression.Input, budget *expression.Budget) error {
	for path := range p.path.Each(object) {
		if !path.InElements(object) {
			continue // it would add a container that is nothing but what the patch sets
		}
		if ctx.Err() != nil {
			return fmt.Errorf("the patches take longer than %s; set fewer fields", timeout)
		}
		input.Value = path.Get(object)
		value, err := p.program.Evaluate(ctx, input, budget)
		if err != nil {
			return err
		}
		if err := path.Set(object, value); err != nil {
			return err
		}
	}
	return nil
}

// decode returns the pod that an object is. Fields that pods don't have are an error.
func decode(object map[string]any) (*corev1.Pod, error) {
	data, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encode a patched pod: %w", err)
	}
	pod := &corev1.Pod{}
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(pod); err != nil {
		return nil, fmt.Errorf("the result is no pod: %w", err)
	}
	return pod, nil
}

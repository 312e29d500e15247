// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package patches

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/lru"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/published/expression"
	"github.com/berth-dev/berth/published/fieldpath"
	"github.com/berth-dev/berth/syncer/resources"
)

// maxFields is how many fields of one object the patches may set, because a tenant decides how long the object's lists are.
const maxFields = 1000

// Patches are the compiled patches of a space. They are safe for concurrent use. Nil has none.
type Patches struct {
	tenant string
	of     map[string][]patch // by resource
}

type patch struct {
	name    string
	path    fieldpath.Path
	program *expression.Program
}

// maxPrograms is how many compiled expressions are kept for other spaces that have the same.
const maxPrograms = 1000

// programs compiles expressions. Spaces with the same expression share a program, since most patches are for all spaces.
type programs struct {
	compiler *expression.Compiler
	made     *lru.Cache // by the expression
}

// shared is made when it is needed first, because that takes 100 ms.
var shared = sync.OnceValues(func() (*programs, error) {
	compiler, err := expression.NewPatchCompiler()
	return &programs{compiler: compiler, made: lru.New(maxPrograms)}, err
})

func (p *programs) compile(text string) (*expression.Program, error) {
	if made, ok := p.made.Get(text); ok {
		return made.(*expression.Program), nil
	}
	program, err := p.compiler.Compile(text)
	if err == nil {
		p.made.Add(text, program)
	}
	return program, err
}

// Compile checks and compiles the patches of a space's spec, of which tenant is the space's, if it has one. There is an error for each
// invalid value.
func Compile(specs []v1alpha1.SyncPatch, tenant string, path *field.Path) (*Patches, field.ErrorList) {
	if len(specs) == 0 {
		return nil, nil
	}
	c, err := shared()
	if err != nil {
		return nil, field.ErrorList{field.InternalError(path, err)}
	}
	patches, errs := &Patches{tenant: tenant, of: map[string][]patch{}}, field.ErrorList{}
	for i, spec := range specs {
		compiled, more := compile(c, spec, path.Index(i))
		errs = append(errs, more...)
		patches.of[spec.Resource] = append(patches.of[spec.Resource], compiled)
	}
	return patches, errs
}

func compile(c *programs, spec v1alpha1.SyncPatch, at *field.Path) (p patch, errs field.ErrorList) {
	p.name = spec.Name
	var err error
	if p.program, err = c.compile(spec.Expression); err != nil {
		errs = append(errs, field.Invalid(at.Child("expression"), spec.Expression, err.Error()))
	}
	if p.path, err = fieldpath.Parse(spec.Path); err == nil {
		err = p.path.Settable()
	}
	if err != nil {
		errs = append(errs, field.Invalid(at.Child("path"), spec.Path, err.Error()))
	}
	possible := patchable()
	r, ok := possible[spec.Resource]
	switch {
	case !ok:
		errs = append(errs, field.NotSupported(at.Child("resource"), spec.Resource, slices.Sorted(maps.Keys(possible))))
	case err != nil:
	case p.path.Begins("metadata") && (r.Name != resources.Pods || !p.path.Begins("metadata", "labels")):
		errs = append(errs, field.Forbidden(at.Child("path"), "the host's policies allow only labels of pods in metadata, because controllers of the host act on the rest"))
	default:
		if err := p.path.In(r.Type); err != nil {
			errs = append(errs, field.Invalid(at.Child("path"), spec.Path, err.Error()))
		}
	}
	return p, errs
}

// patchable are the resources whose objects go to the host.
func patchable() map[string]resources.Resource {
	possible := map[string]resources.Resource{}
	for _, r := range resources.Table() {
		if r.Direction == resources.ToHost {
			possible[r.Name] = r
		}
	}
	return possible
}

// Error is why an object could not be patched. It is for the tenant, who can't see the patch, and for the admin.
type Error struct {
	patch string
	err   error
}

func (e *Error) Error() string {
	return fmt.Sprintf("the platform's patch %q can't be applied: %v; ask the admin of the platform", e.patch, e.err)
}

func (e *Error) Unwrap() error { return e.err }

// Any reports whether there are patches for the objects of a resource.
func (p *Patches) Any(resource string) bool { return p != nil && len(p.of[resource]) > 0 }

// Apply returns the host object that the patches make of host, which is not changed. Source is the object in the space of that name.
func (p *Patches) Apply(ctx context.Context, resource, space string, source, host client.Object) (client.Object, error) {
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(host)
	if err != nil {
		return nil, fmt.Errorf("convert an object of %s: %w", resource, err)
	}
	original, err := runtime.DefaultUnstructuredConverter.ToUnstructured(source)
	if err != nil {
		return nil, fmt.Errorf("convert an object of %s: %w", resource, err)
	}
	input := expression.Input{Tenant: expression.Subject{Name: p.tenant}, Space: expression.Subject{Name: space}, Object: original}
	budget, left := expression.MaxValueBytes, maxFields
	for _, one := range p.of[resource] {
		if err := one.apply(ctx, object, input, &budget, &left); err != nil {
			return nil, &Error{patch: one.name, err: err}
		}
	}
	data, err := json.Marshal(object)
	if err != nil {
		return nil, fmt.Errorf("encode a patched object of %s: %w", resource, err)
	}
	patched := resources.Of(resource).New()
	decoder := json.NewDecoder(bytes.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(patched); err != nil {
		return nil, &Error{patch: p.names(resource), err: err}
	}
	return patched, nil
}

func (p *Patches) names(resource string) string {
	var names []string
	for _, one := range p.of[resource] {
		names = append(names, one.name)
	}
	return strings.Join(names, ", ")
}

func (p patch) apply(ctx context.Context, object map[string]any, input expression.Input, budget, left *int) error {
	for _, path := range p.path.Each(object) {
		if *left--; *left < 0 {
			return fmt.Errorf("the object has more than %d fields that patches set", maxFields)
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

// IsError reports whether an object could not be patched.
func IsError(err error) bool {
	_, is := errors.AsType[*Error](err)
	return is
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package overlay

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/storage"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/definitions"
)

// Definitions returns the storage of definitions, of which next has those of the space.
func (s *Space) Definitions(next storage.Interface) storage.Interface {
	return &definitionStorage{Interface: next, space: s}
}

// definitionStorage shows the definitions that are in force.
type definitionStorage struct {
	storage.Interface
	space *Space
}

// Get implements [storage.Interface].
func (d *definitionStorage) Get(ctx context.Context, key string, opts storage.GetOptions, out runtime.Object) error {
	set, since := d.space.current()
	name := path.Base(key)
	if set.InForce(name, true).Shared {
		return d.serve(ctx, set.Of(name), since, out)
	}
	if creates(ctx, opts) {
		return d.Interface.Get(ctx, key, opts, out)
	}
	err := d.Interface.Get(ctx, key, storage.GetOptions{ResourceVersion: opts.ResourceVersion}, out)
	switch {
	case !storage.IsNotFound(err):
		return err
	case set.InForce(name, false).Shared:
		return d.serve(ctx, set.Of(name), since, out)
	case opts.IgnoreNotFound:
		return d.Interface.Get(ctx, key, opts, out)
	}
	return err
}

// serve writes a shared definition to out.
func (d *definitionStorage) serve(ctx context.Context, shared *definitions.Shared, since int64, out runtime.Object) error {
	to, ok := out.(*apiextensions.CustomResourceDefinition)
	if !ok {
		return storage.NewInternalError(fmt.Errorf("unexpected type %T of a definition", out))
	}
	if r := bounds.ReservationOf(ctx); r != nil {
		if err := r.Grow(2 * sizeOf(shared)); err != nil { // it is converted, and converted again to be encoded
			return refused(err, shared.CRD.Name)
		}
	}
	converted, err := internal(shared.CRD, since)
	if err != nil {
		return storage.NewInternalError(err)
	}
	*to = *converted
	return nil
}

// internal returns a copy of a shared definition in the form that the storage has.
func internal(crd *apiextensionsv1.CustomResourceDefinition, since int64) (*apiextensions.CustomResourceDefinition, error) {
	converted := &apiextensions.CustomResourceDefinition{}
	if err := apiextensionsv1.Convert_v1_CustomResourceDefinition_To_apiextensions_CustomResourceDefinition(crd.DeepCopy(), converted, nil); err != nil {
		return nil, fmt.Errorf("convert the shared definition %s: %w", crd.Name, err)
	}
	converted.ResourceVersion = strconv.FormatInt(since, 10)
	return converted, nil
}

// GetList implements [storage.Interface].
func (d *definitionStorage) GetList(ctx context.Context, key string, opts storage.ListOptions, out runtime.Object) error {
	list, ok := out.(*apiextensions.CustomResourceDefinitionList)
	if !ok {
		return storage.NewInternalError(fmt.Errorf("unexpected type %T of a list of definitions", out))
	}
	for {
		set, since := d.space.current()
		if err := checkAge(d.Versioner(), opts, since); err != nil {
			return err
		}
		if err := d.Interface.GetList(ctx, key, opts, list); err != nil {
			return err
		}
		if now, revision := d.space.current(); now != set || revision != since {
			*list = apiextensions.CustomResourceDefinitionList{}
			continue // the list must not be as new as the change, and lack it
		}
		return d.merge(ctx, key, set, since, opts, list)
	}
}

// checkAge refuses a list of the past, or a further page of one, if other definitions have come into force since.
func checkAge(versioner storage.Versioner, opts storage.ListOptions, since int64) error {
	of, _, err := storage.ValidateListOptions("/", versioner, opts)
	if err == nil && of > 0 && of < since {
		return errExpired()
	}
	return nil // what is wrong with the options, the storage says
}

// merge lays the shared definitions over a page of the space's.
func (d *definitionStorage) merge(
	ctx context.Context, key string, set *definitions.Set, since int64, opts storage.ListOptions, list *apiextensions.CustomResourceDefinitionList,
) error {
	names := set.Names()
	if len(names) == 0 {
		return nil
	}
	list.Items = slices.DeleteFunc(list.Items, func(c apiextensions.CustomResourceDefinition) bool { return set.InForce(c.Name, true).Shared })
	from, to := pageStart(opts.Predicate.Continue), pageStart(list.Continue)
	names = slices.DeleteFunc(names, func(name string) bool {
		return name < from || to != "" && name >= to || !opts.Recursive && name != path.Base(key)
	})
	own, err := d.ownOf(ctx, set, names)
	if err != nil {
		return refused(err, "")
	}
	for _, name := range names {
		if !set.InForce(name, own[name]).Shared {
			continue
		}
		shared := apiextensions.CustomResourceDefinition{}
		if err := d.serve(ctx, set.Of(name), since, &shared); err != nil {
			return err
		}
		matches, err := opts.Predicate.Matches(&shared)
		if err != nil {
			return storage.NewInternalError(err)
		}
		if matches {
			list.Items = append(list.Items, shared)
		}
	}
	slices.SortFunc(list.Items, func(a, b apiextensions.CustomResourceDefinition) int { return strings.Compare(a.Name, b.Name) })
	list.RemainingItemCount = nil
	return nil
}

// ownOf returns of which names the space has a definition of its own, if it matters for one of them. A page of a list can't say that: it
// lacks definitions that its selector doesn't match.
func (d *definitionStorage) ownOf(ctx context.Context, set *definitions.Set, names []string) (map[string]bool, error) {
	if !slices.ContainsFunc(names, func(name string) bool { return set.InForce(name, true).Shared != set.InForce(name, false).Shared }) {
		return nil, nil
	}
	if len(names) == 1 {
		return d.space.ownNames(ctx, names[0])
	}
	return d.space.ownNames(ctx, "")
}

// pageStart is the name at which the page begins that a token asks for.
func pageStart(token string) string {
	if token == "" {
		return ""
	}
	key, _, err := storage.DecodeContinue(token, "/")
	if err != nil {
		return ""
	}
	return strings.TrimPrefix(key, "/")
}

// hasOwn reports whether the space has a definition of its own.
func (d *definitionStorage) hasOwn(ctx context.Context, key string) (bool, error) {
	err := d.Interface.Get(ctx, key, storage.GetOptions{}, &apiextensions.CustomResourceDefinition{})
	if storage.IsNotFound(err) {
		return false, nil
	}
	return err == nil, err
}

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
		return serveTo(ctx, set.Of(name), since, out)
	}
	if creates(ctx, opts) {
		return d.Interface.Get(ctx, key, opts, out)
	}
	err := d.Interface.Get(ctx, key, storage.GetOptions{ResourceVersion: opts.ResourceVersion}, out)
	switch {
	case !storage.IsNotFound(err):
		return err
	case set.InForce(name, false).Shared:
		return serveTo(ctx, set.Of(name), since, out)
	case opts.IgnoreNotFound:
		return d.Interface.Get(ctx, key, opts, out)
	}
	return err
}

// serveTo writes a copy of a shared definition to out.
func serveTo(ctx context.Context, shared *definitions.Shared, since int64, out runtime.Object) error {
	to, ok := out.(*apiextensions.CustomResourceDefinition)
	if !ok {
		return storage.NewInternalError(fmt.Errorf("unexpected type %T of a definition", out))
	}
	converted, err := serve(ctx, shared, since)
	if err == nil {
		converted.DeepCopyInto(to)
	}
	return err
}

// serve returns a shared definition for a request.
func serve(ctx context.Context, shared *definitions.Shared, since int64) (*apiextensions.CustomResourceDefinition, error) {
	if r := bounds.ReservationOf(ctx); r != nil {
		if err := r.Grow(2 * shared.Size()); err != nil { // it may be copied, and is converted to be encoded
			return nil, refused(err, shared.CRD.Name)
		}
	}
	converted, err := internal(shared, since)
	if err != nil {
		return nil, storage.NewInternalError(err)
	}
	return converted, nil
}

// internal returns a shared definition in the form that the storage has. What it points to is shared, and must not be changed.
func internal(shared *definitions.Shared, since int64) (*apiextensions.CustomResourceDefinition, error) {
	converted, err := shared.Internal()
	if err != nil {
		return nil, err
	}
	with := *converted
	with.ResourceVersion = strconv.FormatInt(since, 10)
	return &with, nil
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

// pageBytes is how much of shared definitions a page has at most, in the memory that they take, unless one alone is larger.
const pageBytes = 8 << 20

// merge lays the shared definitions over a page of the space's. The page has no more than the list's limit.
func (d *definitionStorage) merge(
	ctx context.Context, key string, set *definitions.Set, since int64, opts storage.ListOptions, list *apiextensions.CustomResourceDefinitionList,
) error {
	if len(set.Names()) == 0 {
		return nil
	}
	own := slices.DeleteFunc(list.Items, func(c apiextensions.CustomResourceDefinition) bool { return set.InForce(c.Name, true).Shared })
	names, err := matching(key, set, opts, list.Continue)
	if err != nil {
		return err
	}
	isOwned, err := d.ownOf(ctx, set, names)
	if err != nil {
		return refused(err, "")
	}
	names = slices.DeleteFunc(names, func(name string) bool { return !set.InForce(name, isOwned[name]).Shared })
	var page []apiextensions.CustomResourceDefinition
	var size int64
	for len(own)+len(names) > 0 {
		isOwn := len(names) == 0 || len(own) > 0 && own[0].Name < names[0]
		next := ""
		if isOwn {
			next = own[0].Name
		} else {
			next = names[0]
		}
		if limit := opts.Predicate.Limit; limit > 0 && len(page) > 0 && (int64(len(page)) >= limit || size >= pageBytes) {
			if list.Continue, err = continueAt(next, list.ResourceVersion); err != nil {
				return storage.NewInternalError(err)
			}
			break
		}
		if isOwn {
			page, own = append(page, own[0]), own[1:]
			continue
		}
		shared, err := serve(ctx, set.Of(next), since)
		if err != nil {
			return err
		}
		page, names = append(page, *shared), names[1:]
		size += set.Of(next).Size()
	}
	list.Items, list.RemainingItemCount = page, nil
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

// matching returns the names of shared definitions that a page of a list asks for, sorted, whether they are in force or not. next is the
// token of the page after it.
func matching(key string, set *definitions.Set, opts storage.ListOptions, next string) (names []string, err error) {
	from, to := pageStart(opts.Predicate.Continue), pageStart(next)
	for _, name := range set.Names() {
		if name < from || to != "" && name >= to || !opts.Recursive && name != path.Base(key) {
			continue
		}
		matches, err := opts.Predicate.Matches(&apiextensions.CustomResourceDefinition{ObjectMeta: set.Of(name).CRD.ObjectMeta})
		if err != nil {
			return nil, storage.NewInternalError(err)
		}
		if matches {
			names = append(names, name)
		}
	}
	return names, nil
}

// continueAt returns the token of a page that begins with a name.
func continueAt(name, resourceVersion string) (string, error) {
	version, err := strconv.ParseInt(resourceVersion, 10, 64)
	if err != nil {
		return "", fmt.Errorf("read the version of a list: %w", err)
	}
	return storage.EncodeContinue("/"+name, "/", version)
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

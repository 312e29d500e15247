// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package specs

import (
	"errors"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/syncer/resources"
)

// Sync returns what is synced of a space.
func (s *Settings) Sync() resources.SyncOptions { return s.sync }

func (s *Settings) setSync(options resources.SyncOptions) {
	s.sync, s.placement.ByName = options, options.On(resources.DaemonSets)
}

// syncOf returns what spaces may sync at most, and what is synced of a space whose spec is empty.
func syncOf(c *Options, path *field.Path) (offered, usual resources.SyncOptions, errs field.ErrorList) {
	usual, errs = parseSync(c.SpaceDefaults.Sync, path)
	if len(c.AllowedSync) == 0 {
		return usual, usual, errs
	}
	allowed := field.NewPath("allowedSync")
	offered, more := parseSync(joinSync(c.AllowedSync, c.SpaceDefaults.Sync), allowed)
	if errs = append(errs, more...); len(errs) > 0 {
		return offered, usual, errs
	}
	if _, err := usual.Within(offered); err != nil {
		errs = append(errs, field.Invalid(allowed, join(c.AllowedSync), "must be no less than what spaces have by spaceDefaults.sync, or by default: "+err.Error()))
	}
	return offered, usual, errs
}

// syncOf returns what is synced of a space whose spec has these options. On an error, it returns what an empty spec
// means.
func (s *Specs) syncOf(own []v1alpha1.SyncOption, path *field.Path) (resources.SyncOptions, field.ErrorList) {
	if len(own) == 0 {
		return s.usual.sync, nil // shared by all such spaces
	}
	asked, errs := parseSync(joinSync(own, s.defaults.Sync), path)
	if len(errs) > 0 {
		return s.usual.sync, errs
	}
	synced, err := asked.Within(s.sync.Sync)
	if err == nil {
		return synced, nil
	}
	if e, ok := errors.AsType[*resources.NotOfferedError](err); ok {
		if i := slices.IndexFunc(own, func(o v1alpha1.SyncOption) bool { return o.Resource == e.Resource }); i >= 0 {
			path = path.Index(i).Child("value")
		}
		err = errors.New(e.Error() + "; offer more to spaces with allowedSync in the platform's configuration (see docs/reference/sync.md), or ask for less")
	}
	return s.usual.sync, field.ErrorList{field.Forbidden(path, err.Error())}
}

func parseSync(options []v1alpha1.SyncOption, path *field.Path) (resources.SyncOptions, field.ErrorList) {
	synced, err := resources.Parse(args(options))
	if err != nil {
		return synced, field.ErrorList{field.Invalid(path, join(options), err.Error())}
	}
	return synced, nil
}

func join(options []v1alpha1.SyncOption) string { return strings.Join(args(options), ",") }

func args(options []v1alpha1.SyncOption) (args []string) {
	for _, option := range options {
		args = append(args, option.Resource+"="+option.Value)
	}
	return args
}

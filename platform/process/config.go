// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package process has what each process of a platform is told: its own, and those of dedicated spaces.
package process

import (
	"errors"

	"github.com/berth-dev/berth/platform/specs"
)

// Options are what each process of a platform is told.
type Options struct {
	// DataDir is the directory that holds all state on this machine. One platform uses it at a time.
	DataDir string
	specs.Options

	Pods   Pods
	Traces Traces

	// Specs are what Options.Options say. [Options.Complete] sets it.
	Specs *specs.Specs `json:"-"`
}

// Complete refuses what means nothing, as a [*fielderror.Error], or about what is said of spaces a [field.ErrorList]'s aggregate.
func (c *Options) Complete() (err error) {
	if err := errors.Join(c.Traces.check(), c.Pods.check()); err != nil {
		return err
	}
	c.Specs, err = specs.New(&c.Options)
	return err
}

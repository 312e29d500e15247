// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package process is the configuration of each process of a platform: the main one, and those of dedicated spaces.
package process

import (
	"errors"

	"github.com/berth-dev/berth/platform/specs"
	"github.com/berth-dev/berth/vcluster/accessreview"
)

// Options are what all processes of a platform need.
type Options struct {
	// DataDir is the directory with all state on this machine. Only one platform may use it at a time.
	DataDir string
	specs.Options

	Pods   Pods
	Traces Traces
	// Authorizer configures the webhook that is asked after RBAC whether requests in spaces are allowed.
	Authorizer accessreview.Config

	// Specs are made from Options by [Options.Complete].
	Specs *specs.Specs `json:"-"`
}

// Complete sets defaults, and rejects invalid values. The error is a [*fielderror.Error], or for the specs of spaces
// the aggregate of a [field.ErrorList].
func (c *Options) Complete() (err error) {
	if err := errors.Join(c.Traces.check(), c.Pods.check(), c.Authorizer.Complete()); err != nil {
		return err
	}
	c.Specs, err = specs.New(&c.Options)
	return err
}

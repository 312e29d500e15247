// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package process is the configuration of each process of a platform: the main one, and those of dedicated spaces.
package process

import (
	"errors"

	"github.com/berth-dev/berth/internal/fielderror"
	"github.com/berth-dev/berth/platform/specs"
	"github.com/berth-dev/berth/vcluster/accessreview"
	controlplanes "github.com/berth-dev/berth/vcluster/process"
)

// Options are what all processes of a platform need.
type Options struct {
	// DataDir is the directory with all state on this machine. Only one platform may use it at a time.
	DataDir string
	specs.Options

	// EmulatedVersion is the minor version of Kubernetes that spaces serve, such as 1.36; "" for that of the binary.
	EmulatedVersion string

	Pods   Pods
	Traces Traces
	// Authorizer configures the webhook that is asked after RBAC whether requests in spaces are allowed.
	Authorizer accessreview.Config

	// Specs are made from Options by [Options.Complete].
	Specs *specs.Specs `json:"-"`
}

// Emulate has the control planes of this process serve the version of Kubernetes that the configuration names. It must be called before the
// first one starts, and only once in a process.
func (c *Options) Emulate() error {
	if err := controlplanes.Emulate(c.EmulatedVersion); err != nil {
		return fielderror.New("emulated-version", c.EmulatedVersion, "%w", err)
	}
	return nil
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

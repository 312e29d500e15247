// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package operations keeps count of what is done to spaces: one operation on a space at a time, a bounded number of transfers of stores, and
// pauses after moves that have failed.
package operations

import (
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// Changes are the current operations on whole spaces, at most one for each space. The zero value is ready to use. It is
// safe for concurrent use.
type Changes struct {
	mu sync.Mutex
	of map[string]string // the current operation, by space
}

// Begin records an operation on a space until end is called. It fails if there is another one.
func (c *Changes) Begin(space, what string) (end func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if other := c.of[space]; other != "" {
		return nil, apierrors.NewConflict(v1alpha1.Resource("spaces"), space, fmt.Errorf("the space is %s; try again when that has finished", other))
	}
	if c.of == nil {
		c.of = map[string]string{}
	}
	c.of[space] = what
	return func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.of, space)
	}, nil
}

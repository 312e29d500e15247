// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// changes are what is being done to whole spaces: one thing at a time to each. The zero value is ready to use. It is safe for
// concurrent use.
type changes struct {
	mu sync.Mutex
	of map[string]string // what is done, by space
}

// begin notes that something is done to a space until end is called, or fails because something else is.
func (c *changes) begin(space, what string) (end func(), err error) {
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

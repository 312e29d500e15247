// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// changes are the current operations on whole spaces, at most one for each space. The zero value is ready to use. It is
// safe for concurrent use.
type changes struct {
	mu sync.Mutex
	of map[string]string // the current operation, by space
}

// begin records an operation on a space until end is called. It fails if there is another one.
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

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package fields

import (
	"fmt"

	"github.com/berth-dev/berth/bounds"
)

// Steps are weighed by measurement: a step takes 2 to 5 ns on a slow and busy machine.
const (
	// pathSteps is what a byte of a path takes, also in errors.
	pathSteps = 4
	// ownerSteps is what it takes to compare two owner references. An API server compares each two that have the same UID.
	ownerSteps = 100
	// managerSteps is what a field takes for each field manager: an API server may convert the object for each.
	managerSteps = 100
	// managersSteps is what managers take whatever the object's size, times their number squared.
	managersSteps = 10_000
)

// Count is what counts of an object's fields.
type Count struct {
	elements int64  // fields of objects, and elements of lists, in total
	squares  int64  // of the lengths of all maps and lists: field managers insert each element into a sorted list
	paths    int64  // bytes of the paths of all elements: schemas make the path of each, and errors keep it
	longest  int64  // the length of the longest map or list
	name     string // of that
	owners   int64  // owner references
	managers int64  // entries of managedFields
	managed  int64  // the length of the longest map in an entry, which is decoded to a sorted list
	// malformed is why not all has been counted, of protobuf.
	malformed error
}

// Steps is about how many steps it takes to write the object.
func (c Count) Steps() int64 {
	return max(c.squares, c.managed*c.managed) + pathSteps*c.paths + ownerSteps*c.owners*c.owners + c.ofManagers()
}

func (c Count) ofManagers() int64 {
	return c.managers * (managersSteps*c.managers + managerSteps*c.elements)
}

// Check returns an error that says what takes most, if the steps are above the limit, or why they can't be counted.
func (c Count) Check() error {
	if c.malformed != nil {
		return c.malformed
	}
	err := bounds.FieldSteps.Check(c.Steps())
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", c.largest(), err)
}

func (c Count) largest() string {
	owners, managers := ownerSteps*c.owners*c.owners, c.ofManagers()
	switch managed := c.managed * c.managed; max(c.squares, pathSteps*c.paths, owners, managers, managed) {
	case owners:
		return fmt.Sprintf("metadata.ownerReferences has %d elements", c.owners)
	case managers:
		return fmt.Sprintf("metadata.managedFields has %d elements, and the object %d fields", c.managers, c.elements)
	case managed:
		return fmt.Sprintf("an entry of metadata.managedFields has %d fields in a map", c.managed)
	case pathSteps * c.paths:
		return fmt.Sprintf("the paths of all fields together have %d bytes", c.paths)
	}
	return fmt.Sprintf("%q has %d fields or elements", c.name, c.longest)
}

// addElement counts an element of a map or list, which has n with it.
func (c *Count) addElement(path, n int64, name string) {
	c.elements++
	c.paths += path
	c.squares += 2*n - 1
	if n > c.longest {
		c.longest, c.name = n, name
	}
}

// addPath counts more of an element's path, once its name is known.
func (c *Count) addPath(n int64) { c.paths += n }

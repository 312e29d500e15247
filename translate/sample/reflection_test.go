// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package sample

import (
	"fmt"
	"testing"
)

type recorder struct{ errors []string }

func (r *recorder) Errorf(format string, args ...any) {
	r.errors = append(r.errors, fmt.Sprintf(format, args...))
}

// The checks above must be able to fail.
func TestChecksByReflectionSeeWhatTheyLookFor(t *testing.T) {
	type object struct {
		Pointer *int
		List    []string
		Map     map[string]string
	}
	a := object{Pointer: new(int), List: []string{"node-1"}, Map: map[string]string{"k": "v"}}
	var shared, told recorder
	CheckNoSharedMemory(&shared, &a, &object{Pointer: a.Pointer, List: a.List, Map: a.Map})
	if len(shared.errors) != 3 {
		t.Errorf("shared memory: %q", shared.errors)
	}
	CheckSilent(&told, &a, "node-1", "k")
	if len(told.errors) != 2 {
		t.Errorf("told: %q", told.errors)
	}
	if found := FindAll[string](&a); len(found) != 3 {
		t.Errorf("strings: %q", found)
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package publication

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// Limits of one publication. Each space of a shared process shares the objects of a publication without fields, and has its
// own copies of one with fields.
const (
	// MaxObjects limits the objects of a publication.
	MaxObjects = 256
	// MaxBytes limits their size together.
	MaxBytes = 4 << 20
	// MaxBytesWithFields limits a publication that sets fields.
	MaxBytesWithFields = 512 << 10
)

// chosen is an object to publish.
type chosen struct {
	entry
	kind schema.GroupVersionKind
}

// readSource is what was read of one source.
type readSource struct {
	selection
	entries []entry
}

// choose returns the objects that are published, and what is left out and why. Of objects that are selected twice, that of the
// first source is published.
func choose(sources []readSource, withFields bool) (objects []chosen, problems []problem) {
	maxBytes, bytes := MaxBytes, 0
	if withFields {
		maxBytes = MaxBytesWithFields
	}
	seen := map[string]bool{}
	leftOut, example := 0, ""
	for _, source := range sources {
		slices.SortFunc(source.entries, func(a, b entry) int {
			return cmp.Or(cmp.Compare(a.namespace, b.namespace), cmp.Compare(a.name, b.name))
		})
		for _, e := range source.entries {
			object := chosen{entry: e, kind: source.kind}
			id := object.hash()
			switch {
			case seen[id]:
			case e.refused != "":
				problems = append(problems, problem{v1alpha1.ReasonObjectsLeftOut, fmt.Sprintf("%s can't be published: %s", object, e.refused)})
			case len(objects) == MaxObjects || bytes+len(e.content) > maxBytes:
				if leftOut++; example == "" {
					example = object.String()
				}
			default:
				objects = append(objects, object)
				bytes += len(e.content)
			}
			seen[id] = true
		}
	}
	if leftOut > 0 {
		problems = append(problems, problem{v1alpha1.ReasonTooManyObjects, fmt.Sprintf(
			"%d objects are left out, the first of them %s, because a publication may have at most %d objects and %d KiB of them; select fewer, or create another Publication",
			leftOut, example, MaxObjects, maxBytes>>10)})
	}
	return objects, problems
}

// hash returns a name for the object that no other object of the publication has.
func (c chosen) hash() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s\n%s", c.kind.Group, c.kind.Kind, c.namespace, c.name))
	return hex.EncodeToString(sum[:10])
}

// String names the object for messages.
func (c chosen) String() string {
	if c.namespace != "" {
		return fmt.Sprintf("%s %s/%s", c.kind.Kind, c.namespace, c.name)
	}
	return fmt.Sprintf("%s %s", c.kind.Kind, c.name)
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/operator/publication"
	"github.com/berth-dev/berth/sharing"
)

// chosen is an object that is published.
type chosen struct {
	// name is that of the PublishedObject.
	name, publication string
	content           []byte
}

// choice collects what a space shares. Objects come in the order of the names of SharedObjects.
type choice struct {
	space   sharing.Space
	objects []chosen
	leftOut []error

	seen  map[string]bool
	bytes int
}

func newChoice(space sharing.Space) *choice { return &choice{space: space, seen: map[string]bool{}} }

// add publishes an object, or notes why not.
func (c *choice) add(shared *v1alpha1.SharedObject) {
	if err := c.try(shared); err != nil {
		c.leftOut = append(c.leftOut, fmt.Errorf("%s: %w", shared.Name, err))
	}
}

func (c *choice) try(shared *v1alpha1.SharedObject) error {
	if shared.Spec.Scope != v1alpha1.ScopeChildren && shared.Spec.Scope != v1alpha1.ScopeDescendants {
		return fmt.Errorf("spec.scope: %q means nothing", shared.Spec.Scope)
	}
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(shared.Spec.Object.Raw, &object.Object); err != nil || object.Object == nil {
		return errors.New("spec.object: it is no object")
	}
	about := object.GetKind() + " " + object.GetNamespace() + "/" + object.GetName()
	if err := sharing.Check(object); err != nil {
		return fmt.Errorf("%s: %w", about, err)
	}
	if reason := publication.Refuse(object); reason != "" {
		return fmt.Errorf("%s can't be shared: %s", about, reason)
	}
	class := sharing.Class{Scope: shared.Spec.Scope, WholeSpace: sharing.NeedsWholeSpace(object)}
	if class.WholeSpace && c.space.Profile != v1alpha1.SpaceAdmin {
		return fmt.Errorf("%s can't be shared: spec.ownerProfile of tenant %s is not %s", about, c.space.Tenant, v1alpha1.SpaceAdmin)
	}
	content, err := json.Marshal(publication.Clean(object))
	if err != nil {
		return fmt.Errorf("%s: encode the object: %w", about, err)
	}
	if len(content) > sharing.MaxObjectBytes || len(c.objects) >= sharing.MaxObjects || c.bytes+len(content) > sharing.MaxBytes {
		return fmt.Errorf("%s is too much: a space may share at most %d objects, and %d MiB of them", about, sharing.MaxObjects, sharing.MaxBytes>>20)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\n%s\n%s\n%s", object.GetAPIVersion(), object.GetKind(), object.GetNamespace(), object.GetName()))
	id := hex.EncodeToString(sum[:10])
	if c.seen[id] {
		return fmt.Errorf("%s is shared twice", about)
	}
	c.seen[id] = true
	c.bytes += len(content)
	name := sharing.Publication(c.space.Name, class)
	c.objects = append(c.objects, chosen{name + "-" + id, name, content})
	return nil
}

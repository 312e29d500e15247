// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

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
	// leftOut counts the objects that are not published, and reasons says why for the first maxNamed of them.
	leftOut int
	reasons []string

	seen  map[string]bool
	bytes int // of the published objects
	read  int // bytes of all SharedObjects that were read
}

const (
	// maxNamed is how many objects an event names.
	maxNamed = 5
	// maxReasonBytes limits what is kept of each reason. A process that was taken over writes names of a megabyte.
	maxReasonBytes = 200
	// maxReadBytes limits how much of the SharedObjects of a space is read, which is more than what can be published.
	maxReadBytes = 4 * sharing.MaxBytes
)

func newChoice(space sharing.Space) *choice { return &choice{space: space, seen: map[string]bool{}} }

// add publishes an object, or notes why not.
func (c *choice) add(shared *v1alpha1.SharedObject) {
	c.read += len(shared.Spec.Object.Raw)
	if err := c.publish(shared); err != nil {
		c.leaveOut(shared.Name + ": " + err.Error())
	}
}

// full reports whether the SharedObjects that are not read yet must be left out.
func (c *choice) full() bool { return c.read > maxReadBytes }

func (c *choice) leaveOut(reason string) {
	if c.leftOut++; len(c.reasons) < maxNamed {
		c.reasons = append(c.reasons, cut(reason, maxReasonBytes))
	}
}

// cut returns at most so many bytes of a text, in memory of its own, and no part of a rune.
func cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	for limit > 0 && !utf8.RuneStart(text[limit]) {
		limit--
	}
	return strings.Clone(text[:limit])
}

func (c *choice) publish(shared *v1alpha1.SharedObject) error {
	if shared.Spec.Scope != v1alpha1.ScopeChildren && shared.Spec.Scope != v1alpha1.ScopeDescendants {
		return fmt.Errorf("spec.scope: %q is neither %s nor %s", shared.Spec.Scope, v1alpha1.ScopeChildren, v1alpha1.ScopeDescendants)
	}
	if bytes := len(shared.Spec.Object.Raw); bytes > sharing.MaxObjectBytes {
		return fmt.Errorf("spec.object: it has %d bytes, and a shared object may have at most %d", bytes, sharing.MaxObjectBytes)
	}
	object := &unstructured.Unstructured{}
	if err := json.Unmarshal(shared.Spec.Object.Raw, &object.Object); err != nil || object.Object == nil {
		return errors.New("spec.object: the value is not a JSON object")
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
	name := sharing.Publication(c.space, class)
	c.objects = append(c.objects, chosen{name + "-" + id, name, content})
	return nil
}

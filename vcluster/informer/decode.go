// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package informer

import (
	"fmt"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/kubeapiserver"

	"github.com/berth-dev/berth/internal/safego"
)

// decoder turns what is stored into objects of one kind and version, as the API
// server does: through the internal version, with defaults.
type decoder struct {
	version schema.GroupVersion
	codec   runtime.Decoder
}

// storedAs tells where objects of a built-in kind are stored, and how to decode
// them. ok is false for what is not a built-in kind, or is stored as a kind of
// another group.
func storedAs(example runtime.Object) (prefix string, d *decoder, ok bool) {
	kinds, _, err := legacyscheme.Scheme.ObjectKinds(example)
	if err != nil || len(kinds) != 1 {
		return "", nil, false
	}
	kind := kinds[0]
	switch kind.Group {
	case "extensions", "events.k8s.io":
		return "", nil, false
	}
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	internal := schema.GroupVersion{Group: kind.Group, Version: runtime.APIVersionInternal}
	d = &decoder{version: kind.GroupVersion(), codec: legacyscheme.Codecs.UniversalDecoder(internal)}
	return Prefix(resource.GroupResource()), d, true
}

// Prefix returns the prefix of a built-in resource's keys.
func Prefix(r schema.GroupResource) string {
	if special, ok := kubeapiserver.SpecialDefaultResourcePrefixes[r]; ok {
		return Root + special + "/"
	}
	return Root + r.Resource + "/"
}

// decode returns the object, as of a revision of the store. It holds no managed
// fields: they make up half of many objects, and upstream's own informers drop
// them, too.
func (d *decoder) decode(value []byte, revision int64) (runtime.Object, error) {
	var internal runtime.Object
	err := safego.Call("decode stored object", func() (err error) {
		internal, _, err = d.codec.Decode(value, nil, nil)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("decode stored object: %w", err)
	}
	// Nobody else has the internal object: the two may share what they hold.
	object, err := legacyscheme.Scheme.UnsafeConvertToVersion(internal, d.version)
	if err != nil {
		return nil, fmt.Errorf("convert stored object to %s: %w", d.version, err)
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		return nil, err
	}
	accessor.SetResourceVersion(strconv.FormatInt(revision, 10))
	accessor.SetManagedFields(nil)
	// As typed clients do.
	object.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	return object, nil
}

// Trim does the same to an object that came by the API.
func Trim(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil && accessor.GetManagedFields() != nil {
		accessor.SetManagedFields(nil)
	}
	return object, nil
}

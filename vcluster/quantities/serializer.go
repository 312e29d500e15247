// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package quantities

import (
	stdjson "encoding/json"
	"reflect"
	"slices"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"sigs.k8s.io/yaml"
)

// Serializer decodes as another one, but refuses documents as [CheckDocument] does. Scheme has the types of what is decoded.
type Serializer struct {
	runtime.NegotiatedSerializer
	Scheme *runtime.Scheme
}

// DecoderToVersion returns a decoder that checks what it decodes.
func (s Serializer) DecoderToVersion(d runtime.Decoder, version runtime.GroupVersioner) runtime.Decoder {
	return s.NegotiatedSerializer.DecoderToVersion(decoder{d, s.Scheme}, version)
}

type decoder struct {
	runtime.Decoder
	scheme *runtime.Scheme
}

func (d decoder) Decode(document []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if Suspect(document) {
		text := converted(document)
		for _, t := range d.types(text, defaults, into) {
			if err := CheckDocument(text, t); err != nil {
				return nil, nil, err
			}
		}
	}
	return d.Decoder.Decode(document, defaults, into)
}

// types are those that a document may be decoded as: what it says it is, with defaults for what it does not say.
func (d decoder) types(document []byte, defaults *schema.GroupVersionKind, into runtime.Object) []reflect.Type {
	kinds := []schema.GroupVersionKind{said(document)}
	if defaults != nil {
		kinds = append(kinds, *defaults)
	}
	if into != nil {
		if known, _, err := d.scheme.ObjectKinds(into); err == nil {
			kinds = append(kinds, known...)
		}
	}
	var types []reflect.Type
	for _, a := range kinds {
		for _, b := range kinds { // its version may come from one, and its name from another
			if t, ok := d.scheme.AllKnownTypes()[a.GroupVersion().WithKind(b.Kind)]; ok && !slices.Contains(types, t) {
				types = append(types, t)
			}
		}
	}
	return types
}

// said is what JSON or protobuf says that it is.
func said(document []byte) schema.GroupVersionKind {
	if isProtobuf(document) {
		wrapped, err := unwrapped(document)
		if err != nil {
			return schema.GroupVersionKind{}
		}
		return wrapped.GroupVersionKind()
	}
	kind, err := json.DefaultMetaFactory.Interpret(document)
	if err != nil {
		return schema.GroupVersionKind{}
	}
	return *kind
}

// converted returns YAML as JSON, which takes 0.2 s a megabyte, and any other document as it is.
func converted(document []byte) []byte {
	if isProtobuf(document) || stdjson.Valid(document) {
		return document
	}
	if text, err := yaml.YAMLToJSON(document); err == nil {
		return text
	}
	return document
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package fields

import (
	"bytes"
	"encoding/json"

	"google.golang.org/protobuf/encoding/protowire"
	"sigs.k8s.io/yaml"

	"github.com/berth-dev/berth/vcluster/stored"
)

// OfYAML counts YAML, which may be JSON. Of what is neither, nothing counts: an API server refuses it.
func OfYAML(text []byte) Count {
	d := NewDocument(false)
	if !json.Valid(text) {
		converted, err := yaml.YAMLToJSON(text)
		if err != nil {
			return Count{}
		}
		text = converted
	}
	_, _ = d.Write(text)
	return d.Count()
}

// Numbers of fields in protobuf: of what wraps each object, of each object, of metadata, and of an entry of managedFields.
const (
	rawObject     = 2
	metadata      = 1
	ownerRefs     = 13
	managedFields = 17
	fieldsV1      = 7
	rawFields     = 1
)

// OfProtobuf counts the metadata of an object in protobuf. It doesn't know the object's other fields. An API server accounts
// several thousand bytes of memory for each of them, before it decodes them.
func OfProtobuf(data []byte) Count {
	var c Count
	data, ok := bytes.CutPrefix(data, []byte(stored.ProtobufPrefix))
	if !ok {
		return c
	}
	each(data, rawObject, func(object []byte) {
		each(object, metadata, func(m []byte) { c.addMetadata(m) })
	})
	return c
}

func (c *Count) addMetadata(m []byte) {
	lengths := map[protowire.Number]int64{}
	_ = stored.EachField(m, func(number protowire.Number, value []byte) error {
		lengths[number]++
		c.addElement(0, lengths[number], "metadata")
		switch {
		case value == nil:
		case number == ownerRefs:
			c.owners++
		case number == managedFields:
			c.managers++
			each(value, fieldsV1, func(f []byte) {
				each(f, rawFields, func(raw []byte) {
					d := NewDocument(false)
					_, _ = d.Write(raw)
					c.managed = max(c.managed, d.Count().longest)
				})
			})
		}
		return nil
	})
}

// each calls f with each value of a message that has the number.
func each(message []byte, number protowire.Number, f func([]byte)) {
	_ = stored.EachField(message, func(found protowire.Number, value []byte) error {
		if found == number && value != nil {
			f(value)
		}
		return nil
	})
}

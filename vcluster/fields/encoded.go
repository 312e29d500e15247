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
// several thousand bytes of memory for each of them, before it decodes them. [Count.Check] refuses what is malformed: an API
// server's decoder takes some of it.
func OfProtobuf(data []byte) Count {
	var c Count
	data, ok := bytes.CutPrefix(data, []byte(stored.ProtobufPrefix))
	if !ok {
		return c
	}
	c.malformed = each(data, rawObject, func(object []byte) error {
		return each(object, metadata, c.addMetadata)
	})
	return c
}

func (c *Count) addMetadata(m []byte) error {
	lengths := map[protowire.Number]int64{}
	return stored.EachField(m, func(number protowire.Number, value []byte) error {
		lengths[number]++
		c.addElement(0, lengths[number], "metadata")
		switch {
		case value == nil:
		case number == ownerRefs:
			c.owners++
		case number == managedFields:
			c.managers++
			return each(value, fieldsV1, func(f []byte) error { return each(f, rawFields, c.addManaged) })
		}
		return nil
	})
}

func (c *Count) addManaged(raw []byte) error {
	d := NewDocument(false)
	_, _ = d.Write(raw)
	c.managed = max(c.managed, d.Count().longest)
	return nil
}

// each calls f with each value of a message that has the number.
func each(message []byte, number protowire.Number, f func([]byte) error) error {
	return stored.EachField(message, func(found protowire.Number, value []byte) error {
		if found != number || value == nil {
			return nil
		}
		return f(value)
	})
}

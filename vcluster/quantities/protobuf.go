// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package quantities

import (
	"bytes"
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/berth-dev/berth/vcluster/stored"
)

// What fields messages have: one of a quantity, and an entry of a map.
const (
	quantityText protowire.Number = 1
	mapKey       protowire.Number = 1
	mapValue     protowire.Number = 2
)

func isProtobuf(document []byte) bool {
	return bytes.HasPrefix(document, []byte(stored.ProtobufPrefix))
}

// unwrapped is a document without what says how it is encoded.
func unwrapped(document []byte) (*runtime.Unknown, error) {
	var wrapped runtime.Unknown
	if err := wrapped.Unmarshal(document[len(stored.ProtobufPrefix):]); err != nil {
		return nil, fmt.Errorf("%w: %w", errMalformed, err)
	}
	return &wrapped, nil
}

func checkProtobuf(document []byte, of *Type) error {
	wrapped, err := unwrapped(document)
	if err != nil {
		return err
	}
	return of.checkMessage(wrapped.Raw, "")
}

// checkMessage checks one of an object, or of a quantity.
func (s *Type) checkMessage(message []byte, path string) error {
	return stored.EachField(message, func(n protowire.Number, value []byte) error {
		if s.quantity && n == quantityText {
			return s.check(string(value), path)
		}
		field, ok := s.fields[n]
		if !ok {
			return nil
		}
		at := join(path, field.name)
		switch {
		case field.isMap:
			key := ""
			return stored.EachField(value, func(n protowire.Number, value []byte) error {
				switch n {
				case mapKey:
					key = string(value)
				case mapValue:
					return field.element.checkMessage(value, join(at, key))
				}
				return nil
			})
		case field.element != nil:
			return field.element.checkMessage(value, at)
		}
		return field.checkMessage(value, at)
	})
}

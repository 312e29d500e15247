// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package stored

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// EachField calls f with the fields of a protobuf message, in their order, until it returns an error. The value of a field
// is nil if it is no text, bytes or message.
func EachField(message []byte, f func(number protowire.Number, value []byte) error) error {
	for len(message) > 0 {
		number, kind, n := protowire.ConsumeTag(message)
		if n < 0 {
			return fmt.Errorf("malformed protobuf: %w", protowire.ParseError(n))
		}
		message = message[n:]
		size := protowire.ConsumeFieldValue(number, kind, message)
		if size < 0 {
			return fmt.Errorf("malformed protobuf: %w", protowire.ParseError(size))
		}
		var value []byte
		if kind == protowire.BytesType {
			value, _ = protowire.ConsumeBytes(message)
		}
		if err := f(number, value); err != nil {
			return err
		}
		message = message[size:]
	}
	return nil
}

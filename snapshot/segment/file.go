// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package segment

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// Write writes a segment to a file of segments, each after its length.
func Write(to io.Writer, object []byte) error {
	_, err := to.Write(appendBytes(make([]byte, 0, binary.MaxVarintLen64+len(object)), object))
	return err
}

// Read reads the next segment of a file that [Write] has made. It fails with io.EOF at the end of the file, and with [ErrDamaged] if it isn't such
// a file.
func Read(from *bufio.Reader) (object []byte, err error) {
	if _, err := from.Peek(1); err != nil {
		return nil, err
	}
	n, err := binary.ReadUvarint(from)
	if err == nil && n > MaxObject {
		return nil, fmt.Errorf("%w: a segment of %d bytes", ErrDamaged, n)
	}
	if err == nil {
		object = make([]byte, n)
		_, err = io.ReadFull(from, object)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		err = fmt.Errorf("%w: it is cut off", ErrDamaged)
	}
	return object, err
}

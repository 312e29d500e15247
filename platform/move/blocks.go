// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
)

// blockSize is how much of a store is compared, and copied, at once.
const blockSize = 64 << 10

// sum is the checksum of a block.
type sum [sha256.Size]byte

// sums are those of the blocks of a file, in order. They take 512 bytes for each MiB.
type sums []sum

// digest is a checksum of all.
func (s sums) digest() string {
	hash := sha256.New()
	for _, block := range s {
		hash.Write(block[:])
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// eachBlock calls do for each block of what it reads. The last one may be shorter. do must not keep the data.
func eachBlock(from io.Reader, do func(index int, data []byte) error) error {
	buffer := make([]byte, blockSize)
	for index := 0; ; index++ {
		n, err := io.ReadFull(from, buffer)
		if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		if n > 0 {
			if err := do(index, buffer[:n]); err != nil {
				return err
			}
		}
		if err != nil {
			return nil
		}
	}
}

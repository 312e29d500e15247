// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package sqlite

import (
	"context"
	"fmt"
)

// Read returns the current values of the keys with a prefix in the store at path, whether it is open or not. Values of more than size
// bytes are left out, and no more than most are returned. The prefix must end with a slash. Only SQLite opens the file: another descriptor of
// it would end the locks of an open store when it is closed.
func Read(ctx context.Context, path, prefix string, size, most int) (values [][]byte, err error) {
	db := OpenOne(path, ReaderParams)
	defer db.Close()
	end := prefix[:len(prefix)-1] + "0" // the byte after the slash
	rows, err := db.QueryContext(ctx, CurrentSQL, prefix, end, size, most)
	if err != nil {
		return nil, fmt.Errorf("read store %s: %w", path, AsDamage(err))
	}
	defer rows.Close()
	for rows.Next() {
		var value []byte
		if err := rows.Scan(&value); err != nil {
			return nil, fmt.Errorf("read store %s: %w", path, AsDamage(err))
		}
		values = append(values, value)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read store %s: %w", path, AsDamage(err))
	}
	return values, nil
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import "strings"

// connParams are given to every connection.
//
//   - cache=private: with a shared cache, readers get "database table is locked" instead of waiting.
//   - WAL, so that readers and the writer don't wait for one another.
//   - synchronous=FULL: a commit is fsynced before it is acknowledged (D1). NORMAL loses the last commits with the power.
//   - txlock=immediate: a transaction that will write takes its lock first, instead of failing half-way.
//   - _kine_disable_startup_vacuum: VACUUM rewrites the whole file, which has no place on the way to a running space.
const connParams = "cache=private&_journal_mode=WAL&_synchronous=FULL&_busy_timeout=30000&_txlock=immediate" +
	"&_stmt_cache_size=20&_kine_disable_startup_vacuum"

// dsn is a SQLite URI for path with the given parameters. Everything but plain letters is escaped: "?", "#" and "%" mean
// something in a URI, and kine looks for its own switches ("_kine_...") anywhere in the string, path included.
func dsn(path, params string) string {
	const hex = "0123456789ABCDEF"
	var b strings.Builder
	b.WriteString("file:")
	for i := range len(path) {
		switch c := path[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '/', c == '.', c == '-':
			b.WriteByte(c)
		default:
			b.WriteByte('%')
			b.WriteByte(hex[c>>4])
			b.WriteByte(hex[c&15])
		}
	}
	return b.String() + "?" + params
}

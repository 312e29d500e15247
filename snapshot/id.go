// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"fmt"
	"strings"
	"time"
)

const (
	timeFormat = "20060102T150405.000Z"
	suffix     = ".tar.zst"
)

// ID names a snapshot: a space, and when it was taken (UTC, in milliseconds).
type ID struct {
	Space string
	Time  time.Time
}

// String is the form that [ParseID] reads: SPACE/TIME.
func (id ID) String() string { return id.Space + "/" + id.Time.UTC().Format(timeFormat) }

// ParseID reads a snapshot's name. The time may be missing: then it is zero,
// and the space's newest is meant.
func ParseID(text string) (ID, error) {
	space, at, given := strings.Cut(text, "/")
	id := ID{Space: space}
	if space == "" || strings.HasPrefix(space, ".") || strings.ContainsAny(space, `\`) {
		return ID{}, fmt.Errorf("snapshot %q: must be SPACE or SPACE/TIME; `berth snapshot list` prints the names", text)
	}
	if !given {
		return id, nil
	}
	t, err := time.Parse(timeFormat, at)
	if err != nil || t.Format(timeFormat) != at {
		return ID{}, fmt.Errorf("snapshot %q: must be SPACE or SPACE/TIME; `berth snapshot list` prints the names", text)
	}
	id.Time = t
	return id, nil
}

// key is the snapshot's name in a bucket.
func (id ID) key() string { return id.String() + suffix }

// idOf is the snapshot that a bucket has under key; false if it is none.
func idOf(key string) (ID, bool) {
	text, ok := strings.CutSuffix(key, suffix)
	if !ok {
		return ID{}, false
	}
	id, err := ParseID(text)
	return id, err == nil && !id.Time.IsZero()
}

// Info is what a bucket tells of a snapshot.
type Info struct {
	ID    string    `json:"id"`
	Space string    `json:"space"`
	Time  time.Time `json:"time"`
	Bytes int64     `json:"bytes"`
}

func infoOf(o object) (Info, bool) {
	id, ok := idOf(o.key)
	return Info{ID: id.String(), Space: id.Space, Time: id.Time, Bytes: o.size}, ok
}

// byAge sorts by space, the newest snapshot of each first.
func byAge(a, b Info) int { return cmp.Or(cmp.Compare(a.Space, b.Space), b.Time.Compare(a.Time)) }

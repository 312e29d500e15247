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

// ID identifies a snapshot: its space, and when it was taken (UTC, in milliseconds).
type ID struct {
	Space string
	Time  time.Time
}

// String returns the form that [ParseID] parses: SPACE/TIME.
func (id ID) String() string { return id.Space + "/" + id.Time.UTC().Format(timeFormat) }

// ParseID parses the name of a snapshot. If the time is missing, it is zero, which means the newest snapshot of the
// space.
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

// key returns the snapshot's key in a bucket.
func (id ID) key() string { return id.String() + suffix }

// idOf returns the snapshot with this key; false if it is not a snapshot.
func idOf(key string) (ID, bool) {
	text, ok := strings.CutSuffix(key, suffix)
	if !ok {
		return ID{}, false
	}
	id, err := ParseID(text)
	return id, err == nil && !id.Time.IsZero()
}

// Info describes a snapshot in a bucket.
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

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"cmp"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"
)

const (
	timeFormat = "20060102T150405.000Z"
	suffix     = ".tar.zst"
)

// ID identifies a snapshot: its space, and when it was taken (UTC, in milliseconds). Or it identifies the replica of the space.
type ID struct {
	Space string
	Time  time.Time
	// Latest means the replica, as it is at the time of a restore. Store is the ID of the store that it is of; if it is empty, the store
	// that was replicated last. If Until is not 0, what was written after that revision is left out.
	Latest bool
	Store  string
	Until  int64
}

// String returns the form that [ParseID] parses: SPACE/TIME, or SPACE/latest-STORE@REVISION, of which the last two parts are optional.
func (id ID) String() string {
	if !id.Latest {
		return id.Space + "/" + id.Time.UTC().Format(timeFormat)
	}
	text := id.Space + "/" + latest
	if id.Store != "" {
		text += "-" + id.Store
	}
	if id.Until != 0 {
		text += "@" + strconv.FormatInt(id.Until, 10)
	}
	return text
}

// latest is what the name of a replica has in the place of a time.
const latest = "latest"

var replicaPattern = regexp.MustCompile(`^` + latest + `(?:-([0-9a-f]{16}))?(?:@([1-9][0-9]{0,18}))?$`)

// ParseID parses the name of a snapshot. If the time is missing, it is zero, which means the newest snapshot of the
// space.
func ParseID(text string) (ID, error) {
	space, at, given := strings.Cut(text, "/")
	id := ID{Space: space}
	if space == "" || strings.HasPrefix(space, ".") || strings.ContainsAny(space, `\`) {
		return ID{}, fmt.Errorf("snapshot %q: must be SPACE, SPACE/TIME, or SPACE/latest; `berth snapshot list` prints the names", text)
	}
	if !given {
		return id, nil
	}
	if parts := replicaPattern.FindStringSubmatch(at); parts != nil {
		id.Latest, id.Store = true, parts[1]
		var err error
		if parts[2] != "" {
			id.Until, err = strconv.ParseInt(parts[2], 10, 64)
		}
		return id, err
	}
	t, err := time.Parse(timeFormat, at)
	if err != nil || t.Format(timeFormat) != at {
		return ID{}, fmt.Errorf("snapshot %q: must be SPACE, SPACE/TIME, or SPACE/latest; `berth snapshot list` prints the names", text)
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

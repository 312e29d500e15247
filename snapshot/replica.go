// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/berth-dev/berth/snapshot/segment"
)

// replicasDir is where a bucket has replicas, each in SPACE/. It comes after all names of spaces, so that a list of snapshots ends there.
const replicasDir = "~replicas"

// ErrReplicated means that a segment exists already.
var ErrReplicated = errors.New("the rows are in the replica")

// Replica is what a bucket has of a space's store: bases, each a copy of the store at a revision, and segments with the rows after it. They
// belong to streams. It is safe for concurrent use.
type Replica struct {
	bucket *Bucket
	space  string
}

// Replica returns the replica of a space, which may be empty.
func (b *Bucket) Replica(space string) *Replica { return &Replica{b, space} }

// Stream is a history of one store without gaps. A store that is restored, or has lost rows, begins another one.
type Stream struct {
	Store string // its ID, 16 hexadecimal digits
	Moves int64  // how often the space had moved between shards
	Seq   int64  // counts the streams of the store, and the processes that continued one
	Run   string // 8 hexadecimal digits that tell streams apart that two processes begin at once
}

// String is what the names of the stream's objects begin with.
func (s Stream) String() string {
	return fmt.Sprintf("%s-%010d-%010d-%s", s.Store, s.Moves, s.Seq, s.Run)
}

// Compare orders the streams of a store: the last one counts.
func (s Stream) Compare(o Stream) int {
	return cmp.Or(cmp.Compare(s.Moves, o.Moves), cmp.Compare(s.Seq, o.Seq), cmp.Compare(s.Run, o.Run))
}

// Base names a copy of the whole store.
type Base struct {
	Stream   Stream
	Revision int64
	Row      string // the digest of the row with that revision
	Identity string // the digest of the files that identify the space
	Bytes    int64
	// Elsewhere is that of the copy, [Copied].
	Elsewhere bool
}

// Is reports whether both names are those of one object.
func (b Base) Is(o Base) bool { return b.name() == o.name() }

// elsewhereMark is in the name of a base that a process on another machine sent.
const elsewhereMark = "-elsewhere"

func (b Base) name() string {
	mark := ""
	if b.Elsewhere {
		mark = elsewhereMark
	}
	return fmt.Sprintf("%s-base-%020d-%s-%s%s%s", b.Stream, b.Revision, b.Row, b.Identity, mark, suffix)
}

// Segment names rows.
type Segment struct {
	First int64 // revision of the first row
	Bytes int64
}

func segmentName(s Stream, first int64) string { return fmt.Sprintf("%s-rows-%020d.zst", s, first) }

// Claim says with what a process has claimed a stream, before it did anything else to the replica.
type Claim string

// Claims.
const (
	// Begins is that of a process that makes the first base of the stream.
	Begins Claim = "begins"
	// Continues is that of a process that continues the last stream before it. The stream itself gets no bases and no segments.
	Continues Claim = "continues"
)

func claimName(s Stream, c Claim) string { return s.String() + "-" + string(c) }

// History is what a replica has of a stream. Bases and segments are in the order of their revisions.
type History struct {
	Stream   Stream
	Claim    Claim // "" if it has none
	Bases    []Base
	Segments []Segment
	Bytes    int64
	Modified time.Time
}

// Base returns the last base; nil if there is none, so that nothing can be restored from the stream.
func (h *History) Base() *Base {
	if len(h.Bases) == 0 {
		return nil
	}
	return &h.Bases[len(h.Bases)-1]
}

var replicaObject = regexp.MustCompile(`^([0-9a-f]{16})-([0-9]{10})-([0-9]{10})-([0-9a-f]{8})-(?:rows-([0-9]{20})\.zst|base-([0-9]{20})-([0-9a-f]{16})-([0-9a-f]{16})(-elsewhere)?\.tar\.zst|(begins|continues))$`)

// Histories returns what the replica has of each stream, ordered by store, and the streams of a store by age.
func (r *Replica) Histories(ctx context.Context) ([]*History, error) {
	objects, err := r.bucket.list(ctx, replicasDir+"/"+r.space)
	if err != nil {
		return nil, fmt.Errorf("list the replica of space %s at %s: %w", r.space, r.bucket, err)
	}
	return historiesOf(objects), nil
}

// historiesOf returns the histories of the objects of a space. It ignores other objects.
func historiesOf(objects []object) (histories []*History) {
	streams := map[Stream]*History{}
	for _, o := range objects {
		parts := replicaObject.FindStringSubmatch(path.Base(o.key))
		if parts == nil {
			continue
		}
		stream := Stream{Store: parts[1], Moves: number(parts[2]), Seq: number(parts[3]), Run: parts[4]}
		h := streams[stream]
		if h == nil {
			h = &History{Stream: stream}
			streams[stream] = h
		}
		h.Bytes += o.size
		if o.modified.After(h.Modified) {
			h.Modified = o.modified
		}
		switch {
		case parts[5] != "":
			h.Segments = append(h.Segments, Segment{number(parts[5]), o.size})
		case parts[10] != "":
			h.Claim = Claim(parts[10])
		default:
			h.Bases = append(h.Bases, Base{Stream: stream, Revision: number(parts[6]), Row: parts[7], Identity: parts[8], Bytes: o.size, Elsewhere: parts[9] != ""})
		}
	}
	for _, h := range streams {
		slices.SortFunc(h.Bases, func(a, b Base) int { return cmp.Compare(a.Revision, b.Revision) })
		slices.SortFunc(h.Segments, func(a, b Segment) int { return cmp.Compare(a.First, b.First) })
		histories = append(histories, h)
	}
	slices.SortFunc(histories, func(a, b *History) int {
		return cmp.Or(cmp.Compare(a.Stream.Store, b.Stream.Store), a.Stream.Compare(b.Stream))
	})
	return histories
}

// number is that of digits, or 0 if there are too many.
func number(digits string) int64 {
	n, _ := strconv.ParseInt(digits, 10, 64)
	return n
}

// Claim claims a stream. Of two processes that list the streams after that, at least one finds the claim of the other.
func (r *Replica) Claim(ctx context.Context, s Stream, c Claim) error {
	text := claimName(s, c) + "\n" // not all storages take an object without contents
	return r.bucket.put(ctx, r.key(claimName(s, c)), strings.NewReader(text), int64(len(text)))
}

// PutRows stores a segment. It fails with [ErrReplicated] if there is one with the same first revision.
func (r *Replica) PutRows(ctx context.Context, s Stream, first int64, data []byte) error {
	err := r.bucket.putNew(ctx, r.key(segmentName(s, first)), bytes.NewReader(data), int64(len(data)))
	if errors.Is(err, errThere) {
		return ErrReplicated
	}
	return err
}

// Rows returns a segment.
func (r *Replica) Rows(ctx context.Context, s Stream, first int64) ([]byte, error) {
	return withEnd(ctx, func() ([]byte, error) {
		object, err := r.bucket.get(ctx, r.key(segmentName(s, first)))
		if err != nil {
			return nil, err
		}
		defer object.Close()
		data, err := io.ReadAll(io.LimitReader(object, segment.MaxObject+1))
		if err == nil && len(data) > segment.MaxObject {
			err = fmt.Errorf("%w: it has more than %d bytes", segment.ErrDamaged, segment.MaxObject)
		}
		return data, err
	})
}

// RemoveRows and RemoveBase remove what a later base has. That it isn't there is no error.
func (r *Replica) RemoveRows(ctx context.Context, s Stream, first int64) error {
	return r.removeObject(ctx, segmentName(s, first))
}

// RemoveBase is described at [Replica.RemoveRows].
func (r *Replica) RemoveBase(ctx context.Context, b Base) error {
	return r.removeObject(ctx, b.name())
}

func (r *Replica) removeObject(ctx context.Context, name string) error {
	if err := r.bucket.remove(ctx, r.key(name)); err != nil && !errors.Is(err, errNotThere) {
		return fmt.Errorf("remove %s of the replica of space %s: %w", name, r.space, err)
	}
	return nil
}

func (r *Replica) key(name string) string { return replicasDir + "/" + r.space + "/" + name }

// Remove removes all objects of a stream.
func (r *Replica) Remove(ctx context.Context, h *History) error {
	var errs []error
	for _, b := range h.Bases { // first, so that nothing is left that seems to be restorable
		errs = append(errs, r.RemoveBase(ctx, b))
	}
	for _, s := range h.Segments {
		errs = append(errs, r.RemoveRows(ctx, h.Stream, s.First))
	}
	if h.Claim != "" {
		errs = append(errs, r.removeObject(ctx, claimName(h.Stream, h.Claim)))
	}
	return errors.Join(errs...)
}

// delete deletes the replica of a store, or the whole replica if id names none.
func (r *Replica) delete(ctx context.Context, id ID) error {
	histories, err := r.Histories(ctx)
	if err != nil {
		return err
	}
	found := false
	for _, h := range histories {
		if id.Store == "" || id.Store == h.Stream.Store {
			found = true
			err = errors.Join(err, r.Remove(ctx, h))
		}
	}
	if !found {
		err = errNotThere
	}
	if err != nil {
		return fmt.Errorf("delete the replica %s at %s: %w", id, r.bucket, err)
	}
	return nil
}

// Replicas returns the replicas of a space from which it can be restored. The time of one is that of its newest object. If there is only one of
// a space, its name is SPACE/latest; otherwise, the names have the IDs of the stores. If space is empty, Replicas returns only the names of
// the spaces of which there are any: they have many objects.
func (b *Bucket) Replicas(ctx context.Context, space string) ([]Info, error) {
	if space == "" {
		return b.replicated(ctx)
	}
	histories, err := b.Replica(space).Histories(ctx)
	if err != nil {
		return nil, err
	}
	byStore := map[string]*Info{}
	for _, h := range histories {
		info := byStore[h.Stream.Store]
		if last, _ := latestOf(histories, h.Stream.Store); info == nil && last != nil {
			info = &Info{ID: ID{Space: space, Latest: true, Store: h.Stream.Store}.String(), Space: space, Time: last.Modified}
			byStore[h.Stream.Store] = info
		}
		if info != nil {
			info.Bytes += h.Bytes
		}
	}
	var infos []Info
	for _, info := range byStore {
		if len(byStore) == 1 {
			info.ID = ID{Space: space, Latest: true}.String()
		}
		infos = append(infos, *info)
	}
	slices.SortFunc(infos, byAge)
	return infos, nil
}

func (b *Bucket) replicated(ctx context.Context) (infos []Info, err error) {
	names, err := b.names(ctx, replicasDir)
	if err != nil {
		return nil, fmt.Errorf("list replicas at %s: %w", b.name, err)
	}
	slices.Sort(names)
	for _, name := range names {
		infos = append(infos, Info{ID: ID{Space: name, Latest: true}.String(), Space: name})
	}
	return infos, nil
}

// All returns what [Bucket.Replicas] and [Bucket.List] return. If one of them fails, it returns what the other one returned, and the error.
func (b *Bucket) All(ctx context.Context, space string) ([]Info, error) {
	snapshots, err := b.List(ctx, space)
	replicas, replicasErr := b.Replicas(ctx, space)
	all := append(replicas, snapshots...)
	slices.SortStableFunc(all, func(a, b Info) int { return cmp.Compare(a.Space, b.Space) })
	return all, errors.Join(err, replicasErr)
}

// latestOf returns the last stream with a base of a store, or of the store that was replicated last if store is empty.
func latestOf(histories []*History, store string) (found *History, ok bool) {
	for _, h := range histories {
		switch {
		case h.Base() == nil, store != "" && h.Stream.Store != store:
		case found == nil, h.Stream.Store == found.Stream.Store && h.Stream.Compare(found.Stream) > 0,
			h.Stream.Store != found.Stream.Store && h.Modified.After(found.Modified):
			found = h
		}
	}
	return found, found != nil
}

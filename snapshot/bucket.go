// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"path/filepath"
	"slices"
	"time"
)

// Bucket stores snapshots by name. It is safe for concurrent use.
type Bucket struct {
	store
	name string
	// trusted allows this process to open archives with stores from other processes.
	trusted bool
}

// store stores objects. An object becomes visible only when it is complete.
type store interface {
	put(ctx context.Context, key string, data io.Reader, size int64) error
	// putNew is put, but fails with errThere if the object exists, as far as the storage can tell.
	putNew(ctx context.Context, key string, data io.Reader, size int64) error
	// get fails with errNotThere, at once or at the first read.
	get(ctx context.Context, key string) (io.ReadCloser, error)
	// list returns the objects with keys "PREFIX/...". If prefix is empty, it returns those with keys "x/..." for any
	// x, except for replicas.
	list(ctx context.Context, prefix string) ([]object, error)
	// names returns x of the keys "PREFIX/x/...", without a look at what each has.
	names(ctx context.Context, prefix string) ([]string, error)
	remove(ctx context.Context, key string) error
}

type object struct {
	key      string
	size     int64
	modified time.Time
}

var (
	errNotThere = errors.New("the snapshot does not exist; see `berth snapshot list`")
	errThere    = errors.New("the object exists")
)

// Open opens a bucket by its URL: file:///DIRECTORY, or s3://BUCKET/PREFIX?region=R&endpoint=URL&path-style=true. The
// credentials for S3 come from the environment, as for the AWS tools. Open does not access the bucket.
func Open(address string) (*Bucket, error) {
	u, err := url.Parse(address)
	if err != nil {
		return nil, fmt.Errorf("snapshots at %q: %w", address, err)
	}
	query, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return nil, fmt.Errorf("snapshots at %q: %w", address, err)
	}
	known := map[string][]string{"file": nil, "s3": {"region", "endpoint", "path-style"}}[u.Scheme]
	for name := range query {
		if !slices.Contains(known, name) {
			return nil, fmt.Errorf("snapshots at %q: unknown parameter %q; %s:// takes %q", address, name, u.Scheme, known)
		}
	}
	b := &Bucket{name: address}
	switch {
	case u.User != nil:
		return nil, fmt.Errorf("snapshots at %s: the URL must not contain a password; set credentials in the environment", u.Redacted())
	case u.Scheme == "file" && u.Host == "" && filepath.IsAbs(u.Path):
		b.store = impatient{directory(filepath.Clean(u.Path))}
	case u.Scheme == "s3" && u.Host != "":
		b.store, err = openS3(u, query)
	default:
		err = errors.New("must be file:///DIRECTORY or s3://BUCKET/PREFIX?region=R&endpoint=URL&path-style=true")
	}
	if err != nil {
		return nil, fmt.Errorf("snapshots at %q: %w", address, err)
	}
	return b, nil
}

// Trusted returns a bucket whose archives this process may open even if their stores are from the pod of a dedicated
// space.
func (b *Bucket) Trusted() *Bucket {
	trusted := *b
	trusted.trusted = true
	return &trusted
}

// String returns the URL of the bucket.
func (b *Bucket) String() string { return b.name }

// List returns the snapshots of a space, or all if space is empty, sorted by space, the newest first. It ignores other
// objects in the bucket.
func (b *Bucket) List(ctx context.Context, space string) ([]Info, error) {
	objects, err := b.list(ctx, space)
	if err != nil {
		return nil, fmt.Errorf("list snapshots at %s: %w", b.name, err)
	}
	infos := make([]Info, 0, len(objects))
	for _, o := range objects {
		if info, ok := infoOf(o); ok && (space == "" || info.Space == space) {
			infos = append(infos, info)
		}
	}
	slices.SortFunc(infos, byAge)
	return infos, nil
}

// Find returns the snapshot with this ID, or, if that has no time, the newest of the space. The ID of a replica that it returns names a store.
func (b *Bucket) Find(ctx context.Context, id ID) (ID, error) {
	if id.Latest {
		h, _, err := b.Replica(id.Space).newest(ctx, id)
		if err != nil {
			return ID{}, fmt.Errorf("find the replica %s at %s: %w", id, b.name, err)
		}
		id.Store = h.Stream.Store
		return id, nil
	}
	infos, err := b.List(ctx, id.Space)
	if err != nil {
		return ID{}, err
	}
	for _, info := range infos {
		if id.Time.IsZero() || info.Time.Equal(id.Time) {
			return ID{Space: info.Space, Time: info.Time}, nil
		}
	}
	return ID{}, fmt.Errorf("find snapshot %s at %s: %w", id.Space, b.name, errNotThere)
}

// Delete deletes a snapshot permanently.
func (b *Bucket) Delete(ctx context.Context, id ID) error {
	if id.Latest {
		return b.Replica(id.Space).delete(ctx, id)
	}
	if err := b.remove(ctx, id.key()); err != nil {
		return fmt.Errorf("delete snapshot %s at %s: %w", id, b.name, err)
	}
	return nil
}

// Prune deletes all but the newest snapshots of a space.
func (b *Bucket) Prune(ctx context.Context, space string, keep int) error {
	infos, err := b.List(ctx, space)
	if err != nil {
		return err
	}
	var errs []error
	for _, info := range infos[min(keep, len(infos)):] {
		errs = append(errs, b.Delete(ctx, ID{Space: info.Space, Time: info.Time}))
	}
	return errors.Join(errs...)
}

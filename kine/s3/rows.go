// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/kine/mirror"
	"github.com/berth-dev/berth/kine/sqlite"
)

const (
	// fetchMost and fetchBytes are how many objects are read at once, and about how many bytes they have.
	fetchMost, fetchBytes = 16, 32 << 20
	// minPart is how many bytes a part of a base is taken to have at least, whatever the record says.
	minPart = 4 << 20
)

// errReplaced means that another process has replaced what was to be read.
var errReplaced = &lostError{errors.New("another process has replaced the objects that were to be read")}

// Rows passes the rows of the base, and then those of the records after it.
func (l *Log) Rows(ctx context.Context, pass func(mirror.Row) error) (mirror.State, error) {
	end, records, err := l.read(ctx)
	if err != nil || end.Number == 0 {
		return mirror.State{}, err
	}
	var parts []object
	for i := range end.Base.Parts {
		parts = append(parts, object{key: partKey(end.Base.Name, i), size: max(end.Base.Bytes/int64(end.Base.Parts), minPart)})
	}
	after, err := recordsAfter(end, records)
	if err != nil {
		return mirror.State{}, err
	}
	err = l.fetch(ctx, end, append(parts, after...), func(key string, data []byte) error {
		c, err := sharedCodec()
		if err != nil {
			return err
		}
		content := []byte(nil)
		if n, ok := numberOf(end.log, key); ok {
			_, content, err = l.decodeRecord(key, n, data)
		} else {
			_, content, err = c.decode(key, data)
		}
		if err != nil {
			return err
		}
		return eachRow(key, content, end.Revision, pass)
	})
	return end.State(), err
}

// recordsAfter returns the records after the base. It fails with an ErrDamaged that names the first one that is missing.
func recordsAfter(end position, listed []object) (after []object, err error) {
	next := end.Base.Number + 1
	for _, o := range listed {
		n, _ := numberOf(end.log, o.key)
		if n <= end.Base.Number || n > end.Number {
			continue
		}
		if n != next {
			break
		}
		after, next = append(after, o), next+1
	}
	if next != end.Number+1 {
		return nil, missing(recordKey(end.log, next))
	}
	return after, nil
}

func missing(key string) error {
	return fmt.Errorf("%w: the object %s is missing; restore it, or restore a snapshot", sqlite.ErrDamaged, key)
}

// fetch reads objects, several at once, and passes them one after the other, in their order.
func (l *Log) fetch(ctx context.Context, end position, objects []object, pass func(key string, data []byte) error) error {
	for len(objects) > 0 {
		count, bytes := 0, int64(0)
		for count < min(fetchMost, len(objects)) && (count == 0 || bytes+objects[count].size <= fetchBytes) {
			bytes += objects[count].size
			count++
		}
		data, errs := make([][]byte, count), make([]error, count)
		var reading sync.WaitGroup
		for i, o := range objects[:count] {
			safego.Go(&reading, "read objects", func() { data[i], errs[i] = l.bucket.get(ctx, o.key, o.size) }, func(err error) { errs[i] = err })
		}
		reading.Wait()
		for i, o := range objects[:count] {
			err := errs[i]
			if errors.Is(err, errMissing) {
				err = l.whyMissing(ctx, end, o.key)
			}
			if err == nil {
				err = pass(o.key, data[i])
			}
			if err != nil {
				return err
			}
			data[i] = nil
		}
		objects = objects[count:]
	}
	return nil
}

// whyMissing returns the error for an object that is missing, but was needed at an end of the log.
func (l *Log) whyMissing(ctx context.Context, then position, key string) error {
	now, _, err := l.read(ctx)
	if err == nil && now.log == then.log && now.Base == then.Base && now.Files == then.Files {
		err = missing(key)
	}
	if err == nil {
		err = errReplaced
	}
	return err
}

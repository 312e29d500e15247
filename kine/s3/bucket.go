// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/berth-dev/berth/kine/dbms"
	"github.com/berth-dev/berth/kine/sqlite"
)

const (
	// connectTimeout limits how long a connection takes.
	connectTimeout = 5 * time.Second
	// callTimeout limits a request without its data; with slowest bytes in each second for the data.
	callTimeout, slowest = 10 * time.Second, 256 << 10
	// tries is how often a request is made, firstPause the pause before the second time.
	tries, firstPause = 3, 50 * time.Millisecond
	// maxConns limits the connections of a log, and idleTime how long one is kept that isn't used.
	maxConns, idleTime = 20, 15 * time.Second
	// maxPage is how many bytes a page of a list may have, and maxListed how many objects a list may have in all.
	maxPage, maxListed = 8 << 20, 200_000
)

// bucket is the objects with a prefix in a bucket. It is safe for concurrent use.
type bucket struct {
	core      *minio.Core
	transport *http.Transport
	name      string
	prefix    string
	pause     time.Duration // before the second try
	closed    atomic.Bool
}

// open returns the bucket. It connects to nothing.
func (t *target) open() (*bucket, error) {
	b := &bucket{name: t.bucket, prefix: t.prefix, pause: firstPause, transport: &http.Transport{
		Proxy:           http.ProxyFromEnvironment,
		DialContext:     (&net.Dialer{Timeout: connectTimeout}).DialContext,
		TLSClientConfig: t.tls, TLSHandshakeTimeout: connectTimeout,
		MaxConnsPerHost: maxConns, MaxIdleConnsPerHost: maxConns, IdleConnTimeout: idleTime, DisableCompression: true,
	}}
	var err error
	b.core, err = minio.NewCore(t.Hosts[0], &minio.Options{
		Creds: credentials.NewStaticV4(t.User, t.Password, ""), Secure: t.Secure, Region: t.region, BucketLookup: t.lookup,
		Transport: boundedLists{b.transport}, MaxRetries: 1, // requests are repeated here, where it is known what that means
	})
	if err != nil {
		return nil, errors.New("the storage's client rejects the host or the keys of the DSN") // the error might quote them
	}
	return b, nil
}

// boundedLists limits the size of lists, which the client reads as a whole.
type boundedLists struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (b boundedLists) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.next.RoundTrip(req)
	if err == nil && req.URL.Query().Has("list-type") {
		resp.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(resp.Body, maxPage), resp.Body}
	}
	return resp, err
}

// release closes the connections until the next use.
func (b *bucket) release() { b.transport.CloseIdleConnections() }

// close closes the connections.
func (b *bucket) close() {
	b.closed.Store(true)
	b.transport.CloseIdleConnections()
}

// limit returns how long a request with some bytes may take.
func limit(size int64) time.Duration {
	return callTimeout + time.Duration(size)*time.Second/slowest
}

// call makes a request, and makes it again while its outcome is unknown, if that changes nothing. Errors of the storage are callErrors.
func (b *bucket) call(ctx context.Context, doing, key string, size int64, do func(context.Context) error) error {
	for try := 1; ; try++ {
		if b.closed.Load() {
			return &lostError{errors.New("it is closed")}
		}
		limited, cancel := context.WithTimeout(ctx, limit(size))
		err := do(limited)
		cancel()
		switch {
		case err == nil, errors.Is(err, errMissing), errors.Is(err, sqlite.ErrDamaged):
			return err
		case ctx.Err() != nil:
			return ctx.Err()
		case try == tries || faultOf(err) != dbms.Lost || errors.Is(err, context.DeadlineExceeded):
			return &callError{doing + " " + b.prefix + key, err}
		}
		if err := wait(ctx, b.pause<<(try-1)); err != nil {
			return err
		}
	}
}

func wait(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// get returns an object, or errMissing. size is how large it probably is.
func (b *bucket) get(ctx context.Context, key string, size int64) (data []byte, err error) {
	err = b.call(ctx, "read", key, size, func(ctx context.Context) error {
		body, _, _, err := b.core.GetObject(ctx, b.name, b.prefix+key, minio.GetObjectOptions{})
		if response := minio.ToErrorResponse(err); response.StatusCode == http.StatusNotFound && response.Code == minio.NoSuchKey {
			return errMissing
		}
		if err != nil {
			return err
		}
		defer body.Close()
		data, err = io.ReadAll(io.LimitReader(body, maxObject+1))
		if len(data) > maxObject {
			return fmt.Errorf("%w: the object %s%s has more than %d bytes", sqlite.ErrDamaged, b.prefix, key, maxObject)
		}
		return err
	})
	return data, err
}

// write makes one request that writes an object.
func (b *bucket) write(ctx context.Context, key string, data []byte, o minio.PutObjectOptions) error {
	o.ContentType, o.DisableMultipart, o.DisableContentSha256 = "application/zstd", true, true // it is below, for the whole object
	sum := sha256.Sum256(data)
	_, err := b.core.PutObject(ctx, b.name, b.prefix+key, bytes.NewReader(data), int64(len(data)), "", hex.EncodeToString(sum[:]), o)
	return err
}

// put writes an object of a name that nobody else uses.
func (b *bucket) put(ctx context.Context, key string, data []byte) error {
	return b.call(ctx, "write", key, int64(len(data)), func(ctx context.Context) error {
		return b.write(ctx, key, data, minio.PutObjectOptions{})
	})
}

// create writes an object if there is none. It fails with errExists if there is one, which this call may have written itself. An error
// that Fault calls Lost means that the outcome is unknown.
func (b *bucket) create(ctx context.Context, key string, data []byte) error {
	var o minio.PutObjectOptions
	o.SetMatchETagExcept("*") // which is If-None-Match: *
	sent := false             // there is a request whose outcome is unknown
	for try := 1; ; try++ {
		if b.closed.Load() {
			return &lostError{errors.New("it is closed")}
		}
		limited, cancel := context.WithTimeout(ctx, limit(int64(len(data))))
		err := b.write(limited, key, data, o)
		cancel()
		if err == nil {
			return nil
		}
		failed := error(&callError{"write " + b.prefix + key, err})
		status := minio.ToErrorResponse(err).StatusCode
		switch {
		case status == http.StatusPreconditionFailed:
			return errExists
		case faultOf(err) != dbms.Lost && !sent:
			if status == http.StatusNotImplemented {
				return errUnconditional
			}
			return failed
		case faultOf(err) != dbms.Lost, try == tries, errors.Is(err, context.DeadlineExceeded), ctx.Err() != nil:
			return &lostError{failed}
		}
		sent = sent || status != http.StatusConflict // which says that it has had no effect
		if wait(ctx, b.pause<<(try-1)) != nil {
			return &lostError{failed}
		}
	}
}

// object is an object of a list.
type object struct {
	key      string // without the prefix
	size     int64
	modified time.Time
}

// list returns the objects whose keys begin with a text, up to a number of them; 0 means all.
func (b *bucket) list(ctx context.Context, begin string, most int) (objects []object, err error) {
	err = b.call(ctx, "list", begin, maxPage, func(ctx context.Context) error {
		objects = nil
		for o := range b.core.ListObjectsIter(ctx, b.name, minio.ListObjectsOptions{Prefix: b.prefix + begin, Recursive: true, MaxKeys: most}) {
			if o.Err != nil {
				return o.Err
			}
			objects = append(objects, object{strings.TrimPrefix(o.Key, b.prefix), o.Size, o.LastModified})
			if len(objects) == most {
				return nil
			}
			if len(objects) > maxListed {
				return fmt.Errorf("%w: there are more than %d objects below %s%s", sqlite.ErrDamaged, maxListed, b.prefix, begin)
			}
		}
		return ctx.Err() // which ends a list without an error
	})
	return objects, err
}

// remove deletes an object, if it exists.
func (b *bucket) remove(ctx context.Context, key string) error {
	return b.call(ctx, "delete", key, 0, func(ctx context.Context) error {
		return b.core.RemoveObject(ctx, b.name, b.prefix+key, minio.RemoveObjectOptions{})
	})
}

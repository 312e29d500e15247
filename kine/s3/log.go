// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/berth-dev/berth/kine/dbms"
	"github.com/berth-dev/berth/kine/mirror"
	"github.com/berth-dev/berth/kine/sqlite"
)

const (
	// attempts is how often a change of the state is tried when other processes change it.
	attempts = 10
	// maxSteps is how many records are read one after the other before the objects are listed.
	maxSteps = 16

	storeKey              = "store"
	logDir                = "log/"
	baseDir, filesDir     = "base/", "files/"
	wantedDir             = "wanted/"
	numberDigits, hexBase = 16, 16
)

// limits are constants, except in tests.
type limits struct {
	// trust is how long a process trusts what it knows of the end of the log.
	trust time.Duration
	// keep is how long records of takeovers are kept. It must be much longer than trust, and than a signed request is valid, which is 15
	// minutes.
	keep time.Duration
	// records and bytes are how many records a log may have after its base until another one is due, and how many bytes of rows. If the
	// base has more bytes, as many are allowed.
	records, bytes int64
	// recordBytes and partBytes are about how many bytes of rows a record has, and a part of a base.
	recordBytes, partBytes int
}

func defaults() limits {
	return limits{trust: time.Hour, keep: 7 * 24 * time.Hour, records: 1000, bytes: 8 << 20, recordBytes: 8 << 20, partBytes: 4 << 20}
}

// Log keeps the rows of a store in a bucket.
type Log struct {
	target *target
	owner  dbms.Owner
	bucket *bucket
	limits limits
	now    func() time.Time

	// mu is held while a record is written. lost means that this process may have written more than it knows. wrote is when it last wrote a
	// record, and looked when it last looked whether another process asks for a takeover.
	mu            sync.Mutex
	lost          error
	wrote, looked time.Time

	// knowing guards the fields below, for short times.
	knowing sync.Mutex
	end     position
	// takeovers are those of the last days.
	takeovers []takeover
	// uploading are the names of bases and files that no record names yet; unsure those that a record may name.
	uploading, unsure map[string]bool
	// untidy means that an earlier process may have left objects. compactAt is the number of the record after which a base is tried
	// again.
	untidy    bool
	compactAt int64
}

var (
	_ mirror.Log       = (*Log)(nil)
	_ mirror.Compacter = (*Log)(nil)
)

// position is the end of a log.
type position struct {
	log    string // its name; empty if there is none
	record        // the last one, without its takeovers; the zero record if there is none
	known  time.Time
}

// New returns the log of a space. It connects to nothing.
func New(c mirror.Config, owner dbms.Owner) (*Log, error) {
	t, err := parse(c)
	if err != nil {
		return nil, err
	}
	b, err := t.open()
	if err != nil {
		return nil, err
	}
	return &Log{target: t, owner: owner, bucket: b, limits: defaults(), now: time.Now, uploading: map[string]bool{}, unsure: map[string]bool{}}, nil
}

func (l *Log) String() string { return l.target.String() }

func logOf(name string) string { return logDir + name + "/" }

func recordKey(log string, number int64) string {
	return fmt.Sprintf("%s%0*x", logOf(log), numberDigits, number)
}

// numberOf returns the number of a record of a log.
func numberOf(log, key string) (number int64, ok bool) {
	digits, is := strings.CutPrefix(key, logOf(log))
	if !is || len(digits) != numberDigits {
		return 0, false
	}
	number, err := strconv.ParseInt(digits, hexBase, 64)
	return number, err == nil && number > 0
}

// last returns the end of the log as this process knows it; the zero position before a takeover.
func (l *Log) last() position {
	l.knowing.Lock()
	defer l.knowing.Unlock()
	return l.end
}

// moved records that a record is the last one.
func (l *Log) moved(p position) {
	p.Takeovers = nil
	l.knowing.Lock()
	defer l.knowing.Unlock()
	l.end = p
}

// knew records that the record of a number was the last one at a time.
func (l *Log) knew(number int64, at time.Time) {
	l.knowing.Lock()
	defer l.knowing.Unlock()
	if l.end.Number == number && at.After(l.end.known) {
		l.end.known = at
	}
}

// stale reports whether something is known for too long to be trusted. A machine that was stopped as a whole may have a monotonic clock
// that was stopped, too.
func (l *Log) stale(known time.Time) bool {
	now := l.now()
	return max(now.Sub(known), now.Round(0).Sub(known.Round(0))) > l.limits.trust
}

// State returns the state in the bucket.
func (l *Log) State(ctx context.Context) (mirror.State, error) {
	end, _, err := l.read(ctx)
	return end.State(), err
}

// Epoch returns the epoch in the bucket; 0 if there is none. While this process has the log, that is one request: the next record is
// missing.
func (l *Log) Epoch(ctx context.Context) (int64, error) {
	end := l.last()
	if end.Number > 0 && !l.stale(end.known) {
		began := l.now()
		for n := end.Number + 1; n <= end.Number+maxSteps; n++ {
			next, err := l.record(ctx, end.log, n, 0)
			switch {
			case errors.Is(err, errMissing):
				l.knew(n-1, began)
				return end.Epoch, nil
			case err != nil:
				return 0, err
			case next.Epoch != end.Epoch:
				return next.Epoch, nil
			}
		}
	}
	end, _, err := l.read(ctx)
	return end.Epoch, err
}

// read returns the end of the log in the bucket, and the objects of its records in order; zeros if there is none.
func (l *Log) read(ctx context.Context) (position, []object, error) {
	for range attempts {
		began := l.now()
		store, err := l.identity(ctx)
		if err != nil || store == nil {
			return position{}, nil, err
		}
		listed, err := l.bucket.list(ctx, logOf(store.Log), 0)
		if err != nil {
			return position{}, nil, err
		}
		records, last := listed[:0], int64(0)
		for _, o := range listed {
			if n, ok := numberOf(store.Log, o.key); ok {
				records, last = append(records, o), max(last, n)
			}
		}
		if last == 0 {
			return position{log: store.Log, known: began}, nil, nil
		}
		r, err := l.record(ctx, store.Log, last, 0)
		if errors.Is(err, errMissing) {
			continue // it was replaced by a base
		}
		if err != nil {
			return position{}, nil, err
		}
		return position{log: store.Log, record: r, known: began}, records, nil
	}
	return position{}, nil, fmt.Errorf("%w: the last record of the log is missing", sqlite.ErrDamaged)
}

// identity returns what the object store says; nil if it is missing.
func (l *Log) identity(ctx context.Context) (*identity, error) {
	data, err := l.bucket.get(ctx, storeKey, 0)
	if errors.Is(err, errMissing) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	c, err := sharedCodec()
	if err != nil {
		return nil, err
	}
	h, _, err := c.decode(storeKey, data)
	if err != nil || h.Store == nil || h.Store.Log == "" || strings.Contains(h.Store.Log, "/") {
		return nil, fmt.Errorf("%w: the object %s%s is of another program, or damaged; use a prefix of its own for each space", sqlite.ErrNotStore, l.target.prefix, storeKey)
	}
	return h.Store, h.Store.owner().CheckIs(l.owner)
}

// record reads the record of a number, without its rows. It fails with errMissing if there is none.
func (l *Log) record(ctx context.Context, log string, number, size int64) (record, error) {
	key := recordKey(log, number)
	data, err := l.bucket.get(ctx, key, size)
	if err != nil {
		return record{}, err
	}
	r, _, err := l.decodeRecord(key, number, data)
	return r, err
}

func (l *Log) decodeRecord(key string, number int64, data []byte) (record, []byte, error) {
	c, err := sharedCodec()
	if err != nil {
		return record{}, nil, err
	}
	h, rows, err := c.decode(key, data)
	if err != nil {
		return record{}, nil, err
	}
	r := h.Record
	if r == nil || r.Number != number || r.Epoch <= 0 || r.Revision < 0 || r.Base.Number < 0 || r.Base.Number >= number || !r.Base.plausible() {
		return record{}, nil, fmt.Errorf("%w: the object %s is not a record of a log", sqlite.ErrDamaged, key)
	}
	return *r, rows, r.State().Owner.CheckIs(l.owner)
}

// Release closes connections until the next use.
func (l *Log) Release() error {
	l.bucket.release()
	return nil
}

// Close closes connections. The log can't be used afterwards.
func (l *Log) Close() error {
	l.bucket.close()
	return l.Release()
}

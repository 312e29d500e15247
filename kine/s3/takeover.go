// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package s3

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/berth-dev/berth/kine/mirror"
	"github.com/berth-dev/berth/kine/sqlite"
)

// maxTakeovers is how many takeovers a record has. If there are more within the days for which they are kept, the first ones are deleted
// earlier: with one in each second, after some hours.
const maxTakeovers = 20_000

const (
	// overtaking is how many records a takeover follows before it finds the end of the log again.
	overtaking = 100
	// lookEvery is how often a process that writes all the time looks whether another one asks for a takeover.
	lookEvery = time.Second
	// yieldTime is how long it then writes nothing.
	yieldTime = time.Second
)

// errContended means that other processes were faster each time.
var errContended = errors.New("other processes take the store over all the time")

// TakeOver makes this process the one that writes. It fails with errUnconditional if the storage would let others write, too.
func (l *Log) TakeOver(ctx context.Context, expected *int64) (mirror.State, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.last()
	for range attempts {
		end, _, err := l.read(ctx)
		if err == nil {
			err = end.CheckExpected(l.String(), expected)
		}
		if err == nil && end.log != "" && end.Number == 0 {
			err = l.checkNew(ctx, end)
		}
		if err == nil && end.log == "" {
			if err = l.begin(ctx); err == nil || errors.Is(err, errExists) {
				continue // from now on, there is a log
			}
		}
		if err != nil {
			return mirror.State{}, err
		}
		takeovers, err := l.takeoversOf(ctx, end)
		if err != nil {
			return mirror.State{}, err
		}
		end, change, err := l.overtake(ctx, end, takeovers)
		if err != nil {
			return mirror.State{}, err
		}
		if change == nil {
			if err := l.bucket.create(ctx, wantedKey(end.Epoch+1), []byte(l.owner.Space)); err != nil && !errors.Is(err, errExists) {
				return mirror.State{}, err
			}
			continue
		}
		switch err := l.bucket.create(ctx, change.key, change.data); {
		case err == nil:
			return mirror.State{}, errUnconditional
		case !errors.Is(err, errExists):
			return mirror.State{}, fmt.Errorf("find out whether the storage supports conditional writes: %w", err)
		}
		last, err := l.isLast(ctx, &change.next)
		if err != nil || !last {
			l.moved(before)
		}
		if err != nil {
			return mirror.State{}, err
		}
		if !last {
			continue
		}
		l.lost = nil
		l.sure()
		l.tookOver(append(takeovers, takeover{change.next.Start, l.now().Unix()}))
		return end.State(), nil
	}
	return mirror.State{}, errContended
}

// overtake writes the record of a takeover after the end of a log, and returns the end before the takeover. The process that has the log may
// write faster than its end is found, so records that have come since then are read one by one. The change is nil if that isn't possible: the
// end has to be found again.
func (l *Log) overtake(ctx context.Context, end position, takeovers []takeover) (position, *change, error) {
	for range overtaking {
		next := end.record
		next.Space, next.ID, next.Epoch, next.Start = l.owner.Space, l.owner.ID, end.Epoch+1, end.Number+1
		next.Takeovers = append(takeovers, takeover{next.Start, l.now().Unix()})
		c, err := l.prepare(end, next, nil)
		if err != nil {
			return end, nil, err
		}
		there, err := l.write(ctx, c)
		if err != nil || there.Nonce == c.next.Nonce {
			return end, c, err
		}
		if there.Epoch != end.Epoch {
			return end, nil, nil
		}
		end.record = there
	}
	return end, nil, nil
}

// isLast reports whether a record is the last one of the log. That its number was free when it was written isn't enough: the process that has
// the log may have written a base meanwhile, and have deleted the records that it replaces. Then a later record names that base.
func (l *Log) isLast(ctx context.Context, written *position) (bool, error) {
	end, _, err := l.read(ctx)
	return end.log == written.log && end.Number == written.Number && end.Nonce == written.Nonce, err
}

// wantedKey returns the object by which another process asks for a takeover that begins an epoch.
func wantedKey(epoch int64) string { return fmt.Sprintf("%s%0*x", wantedDir, numberDigits, epoch) }

// yield pauses the writes of this process if another one has asked for a takeover. That needs longer than this process for a record, so it might
// never be the first to use a number. Somebody who writes seldom needs no pause. The caller has mu.
func (l *Log) yield(ctx context.Context, epoch int64) error {
	if now := l.now(); now.Sub(l.looked) < lookEvery || now.Sub(l.wrote) >= yieldTime {
		return nil
	}
	defer func() { l.looked = l.now() }()
	wanted := wantedKey(epoch + 1)
	if _, err := l.bucket.get(ctx, wanted, 0); err != nil {
		return nil // nobody asks; or the storage fails, of which the next write says more
	}
	if err := l.bucket.remove(ctx, wanted); err != nil {
		return nil // likewise
	}
	return wait(ctx, yieldTime) // if that isn't enough, the other process asks again
}

// checkNew fails if a log without records has had some.
func (l *Log) checkNew(ctx context.Context, end position) error {
	for _, dir := range []string{baseDir, filesDir} {
		left, err := l.bucket.list(ctx, dir, 1)
		if err != nil {
			return err
		}
		if len(left) > 0 {
			return fmt.Errorf("%w: all objects below %s are missing, and there is the object %s; restore them, or restore a snapshot", sqlite.ErrDamaged,
				logOf(end.log), left[0].key)
		}
	}
	return nil
}

func (l *Log) tookOver(all []takeover) {
	l.knowing.Lock()
	defer l.knowing.Unlock()
	l.takeovers, l.untidy, l.compactAt = all, true, 0
}

// begin creates a log without records. It fails with errExists if another process has done that.
func (l *Log) begin(ctx context.Context) error {
	others, err := l.bucket.list(ctx, "", 1)
	if err != nil {
		return err
	}
	if len(others) > 0 && !strings.HasPrefix(others[0].key, wantedDir) {
		if others[0].key == storeKey {
			return errExists
		}
		return fmt.Errorf("%w: there is the object %s%.200s, but no object %s; use a prefix of its own for each space", sqlite.ErrNotStore,
			l.target.prefix, others[0].key, storeKey)
	}
	c, err := sharedCodec()
	if err != nil {
		return err
	}
	data, err := c.encode(header{Object: storeKey, Store: &identity{Space: l.owner.Space, ID: l.owner.ID, Log: rand.Text()}}, nil)
	if err != nil {
		return err
	}
	return l.bucket.create(ctx, storeKey, data)
}

// takeoversOf returns the last takeovers up to the end of a log, without those whose records needn't be kept.
func (l *Log) takeoversOf(ctx context.Context, end position) ([]takeover, error) {
	if end.Number == 0 {
		return nil, nil
	}
	all := end.Takeovers
	if end.Start != end.Number {
		start, err := l.record(ctx, end.log, end.Start, 0)
		if errors.Is(err, errMissing) {
			err = fmt.Errorf("%w: its record %s is missing", sqlite.ErrDamaged, recordKey(end.log, end.Start))
		}
		if err != nil {
			return nil, err
		}
		all = start.Takeovers
	}
	oldest := l.now().Add(-l.limits.keep).Unix()
	all = slices.DeleteFunc(slices.Clone(all), func(t takeover) bool { return t.Time < oldest })
	return all[max(0, len(all)-maxTakeovers+1):], nil
}

// Reconnect makes sure that nothing that this process has sent can take effect any more: if a record is still on its way, its number is
// used afterwards.
func (l *Log) Reconnect(ctx context.Context) (mirror.State, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	own := l.last()
	l.bucket.release()
	for range attempts {
		end, _, err := l.read(ctx)
		if err == nil {
			err = l.checkOwn(own, end)
		}
		if err != nil {
			return mirror.State{}, err
		}
		next := end.record
		next.Takeovers = nil
		change, err := l.prepare(end, next, nil)
		if err != nil {
			return mirror.State{}, err
		}
		there, err := l.write(ctx, change)
		if err != nil {
			return mirror.State{}, err
		}
		if there.Nonce == change.next.Nonce {
			l.lost = nil
			l.sure()
			return end.State(), nil
		}
	}
	return mirror.State{}, &lostError{errors.New("the state changes all the time")}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package nats

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/berth-dev/berth/kine/dbms"
	"github.com/berth-dev/berth/kine/mirror"
	"github.com/berth-dev/berth/kine/sqlite"
)

const (
	// batchBytes is about how many bytes a batch has.
	batchBytes = 4 << 20
	// partBytes is how large a part of the files is.
	partBytes = 1 << 20
	// pullMessages and pullBytes limit what is read ahead.
	pullMessages, pullBytes = 500, 8 << 20
	// keptDeletions is how many messages about deletions are kept until they are deleted.
	keptDeletions = 64
)

// CheckSize fails if a row is too large.
func (l *Log) CheckSize(r *mirror.Row) error {
	switch n := len(r.Key) + len(r.Value); {
	case len(r.Key) > maxKey:
		return fmt.Errorf("%w: the key has %d bytes, and may have %d", mirror.ErrTooLarge, len(r.Key), maxKey)
	case n > maxRow:
		return fmt.Errorf("%w: they have %d bytes, and may have %d", mirror.ErrTooLarge, n, maxRow)
	}
	return nil
}

// subjectOf returns a key as a part of a subject.
func subjectOf(key string) string { return base64.RawURLEncoding.EncodeToString([]byte(key)) }

// Append writes changes. Those in one batch take effect together.
func (l *Log) Append(ctx context.Context, rows []mirror.Row) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := batch{log: l, prefix: l.rowsOf(l.meta.Generation), revision: true}
	for i := range rows {
		if err := b.add(ctx, &rows[i]); err != nil {
			return err
		}
	}
	if err := b.write(ctx); err != nil {
		return err
	}
	l.purge(ctx, keptDeletions)
	return nil
}

// purge deletes messages about deletions, if there are more than kept, but not the last message of the stream. What is left is
// deleted later, or at the next rebuild of the cache.
func (l *Log) purge(ctx context.Context, kept int) {
	if len(l.deletions) <= kept {
		return
	}
	_ = l.call(ctx, func(ctx context.Context, c *conn) error {
		for len(l.deletions) > 0 && l.deletions[0] < l.last {
			// An error of the server means that it is gone, because the key was created again.
			if err := c.stream.DeleteMsg(ctx, l.deletions[0]); err != nil && ctx.Err() != nil {
				return &callError{err}
			}
			l.deletions = l.deletions[1:]
		}
		return nil
	})
}

// batch collects changes, of which the last one of each key is written.
type batch struct {
	log      *Log
	prefix   string
	revision bool // the state has the revision of the last change, too

	rows    []*mirror.Row
	bytes   int
	written bool // a batch was written
}

func (b *batch) add(ctx context.Context, r *mirror.Row) error {
	size := len(r.Key) + len(r.Value)
	if len(b.rows) == batchMax || len(b.rows) > 0 && b.bytes+size > batchBytes {
		if err := b.write(ctx); err != nil {
			return err
		}
	}
	b.rows, b.bytes = append(b.rows, r), b.bytes+size
	return nil
}

func (b *batch) write(ctx context.Context) error {
	if len(b.rows) == 0 {
		return nil
	}
	l, later := b.log, map[string]bool{}
	state := l.meta
	if b.revision {
		state.Revision = b.rows[len(b.rows)-1].Revision
	}
	var messages []message
	for _, r := range slices.Backward(b.rows) {
		if !later[r.Key] {
			later[r.Key] = true
			messages = append(messages, message{subject: b.prefix + subjectOf(r.Key), data: r.Encode(), state: state})
		}
	}
	slices.Reverse(messages)
	first := l.last + 1
	err := l.change(ctx, messages)
	if err != nil && b.written && b.revision && l.lost == nil {
		// The changes have taken effect up to here.
		l.lost = err
		err = &lostError{err}
	}
	if err != nil {
		return err
	}
	deleted := map[string]bool{}
	for _, r := range b.rows {
		deleted[b.prefix+subjectOf(r.Key)] = r.Deleted
	}
	for i, m := range messages {
		if deleted[m.subject] {
			l.deletions = append(l.deletions, first+uint64(i))
		}
	}
	b.rows, b.bytes, b.written = nil, 0, true
	return nil
}

// Advance increases the revision.
func (l *Log) Advance(ctx context.Context, revision int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := l.meta
	next.Revision = revision
	if err := l.change(ctx, []message{{subject: l.metaSubject(), state: next}}); err != nil {
		return err
	}
	l.purge(ctx, 0)
	return nil
}

// Replace writes rows as the next generation, which one message makes the current one.
func (l *Log) Replace(ctx context.Context, revision int64, write func(put func(mirror.Row) error) error) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := l.meta
	next.Generation, next.Revision = l.meta.Generation+1, revision
	b := batch{log: l, prefix: l.rowsOf(next.Generation)}
	err := write(func(r mirror.Row) error {
		if err := l.CheckSize(&r); err != nil {
			return fmt.Errorf("%s: %w", r.Key, err)
		}
		return b.add(ctx, &r)
	})
	if err == nil {
		err = b.write(ctx)
	}
	if err == nil {
		err = l.change(ctx, []message{{subject: l.metaSubject(), state: next}})
	}
	if err != nil {
		return err
	}
	return l.clean(ctx)
}

// Rows passes the messages of the current rows, in the order of the stream, until there are no more at that moment.
func (l *Log) Rows(ctx context.Context, pass func(mirror.Row) error) (mirror.State, error) {
	m, _, err := l.read(ctx)
	if err != nil || m.Epoch == 0 {
		return m.State(), err
	}
	c, err := l.connect(ctx)
	if err != nil {
		return mirror.State{}, err
	}
	prefix := l.rowsOf(m.Generation)
	consumer, err := c.stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{FilterSubjects: []string{prefix + ">"}, MaxResetAttempts: attempts})
	if err != nil {
		return mirror.State{}, &callError{err}
	}
	state := m.State()
	if consumer.CachedInfo().NumPending > 0 {
		last, err := l.consume(ctx, consumer, prefix, pass)
		if err != nil {
			return mirror.State{}, err
		}
		state.Revision = max(state.Revision, last)
	}
	now, err := l.State(ctx)
	if err == nil && (now.Epoch != state.Epoch || now.Generation != state.Generation) {
		err = fmt.Errorf("%w: while it was read", dbms.ErrFenced)
	}
	return state, err
}

func (l *Log) consume(ctx context.Context, consumer jetstream.Consumer, prefix string, pass func(mirror.Row) error) (last int64, err error) {
	messages, err := consumer.Messages(jetstream.PullMaxMessagesWithBytesLimit(pullMessages, pullBytes))
	if err != nil {
		return 0, &callError{err}
	}
	defer messages.Stop()
	var deletions []uint64
	defer func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.deletions = append(l.deletions, deletions...)
	}()
	for {
		one, cancel := context.WithTimeout(ctx, callTimeout)
		msg, err := messages.Next(jetstream.NextContext(one))
		cancel()
		if err != nil {
			return 0, &callError{err}
		}
		about, err := msg.Metadata()
		if err != nil {
			return 0, &callError{err}
		}
		key, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(msg.Subject(), prefix))
		if err != nil {
			return 0, fmt.Errorf("%w: the subject %.100s is not of a key", sqlite.ErrDamaged, msg.Subject())
		}
		r, err := mirror.Decode(string(key), msg.Data(), math.MaxInt64)
		if err != nil {
			return 0, err
		}
		if r.Deleted {
			deletions = append(deletions, about.Sequence.Stream)
		}
		if err := pass(r); err != nil {
			return 0, err
		}
		last = max(last, r.Revision)
		if about.NumPending == 0 {
			return last, nil
		}
	}
}

// Files returns the saved files, and the state.
func (l *Log) Files(ctx context.Context) (dbms.Files, mirror.State, error) {
	m, _, err := l.read(ctx)
	if err != nil || m.FilesEpoch == 0 {
		return dbms.Files{}, m.State(), err
	}
	var text []byte
	err = l.call(ctx, func(ctx context.Context, c *conn) error {
		text = nil
		for part := range m.FilesParts {
			msg, err := c.stream.GetLastMsgForSubject(ctx, l.filesOf(m.FilesSet)+strconv.Itoa(part))
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				return errReplaced
			}
			if err != nil {
				return &callError{err}
			}
			if text = append(text, msg.Data...); len(text) > 2*dbms.MaxFiles {
				return fmt.Errorf("%w: the files of the space have more than %d bytes", sqlite.ErrDamaged, len(text))
			}
		}
		return nil
	})
	if err != nil {
		return dbms.Files{}, mirror.State{}, err
	}
	data, err := dbms.DecodeFiles(text)
	if err != nil {
		return dbms.Files{}, mirror.State{}, fmt.Errorf("%w: %w", sqlite.ErrDamaged, err)
	}
	return dbms.Files{Epoch: m.FilesEpoch, Data: data}, m.State(), nil
}

var errReplaced = &lostError{errors.New("the files of the space are being replaced")}

// SaveFiles writes files as the next set, together with the state that makes it the current one.
func (l *Log) SaveFiles(ctx context.Context, data map[string][]byte) error {
	text, err := json.Marshal(data)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	next := l.meta
	next.FilesEpoch, next.FilesSet, next.FilesParts = next.Epoch, next.FilesSet+1, 0
	var messages []message
	for part := range slices.Chunk(text, partBytes) {
		messages = append(messages, message{subject: l.filesOf(next.FilesSet) + strconv.Itoa(next.FilesParts), data: part})
		next.FilesParts++
	}
	messages = append(messages, message{subject: l.metaSubject()})
	for i := range messages {
		messages[i].state = next
	}
	if err := l.change(ctx, messages); err != nil {
		return err
	}
	return l.clean(ctx)
}

// Drop deletes the stream, or what is in it if Berth has not created it.
func (l *Log) Drop(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.change(ctx, []message{{subject: l.metaSubject(), state: l.meta}}); err != nil { // nobody else has it
		return err
	}
	return l.call(ctx, func(ctx context.Context, c *conn) error {
		var err error
		if c.stream.CachedInfo().Config.Metadata[createdBy] == createdByBerth {
			err = c.js.DeleteStream(ctx, l.target.Path)
		} else {
			err = c.stream.Purge(ctx)
		}
		if err != nil {
			return &callError{err}
		}
		return nil
	})
}

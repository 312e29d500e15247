// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package nats

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"sync"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/berth-dev/berth/kine/dbms"
	"github.com/berth-dev/berth/kine/mirror"
	"github.com/berth-dev/berth/kine/sqlite"
)

const (
	// attempts is how often a change of the state is tried when other processes change it.
	attempts = 10
	// stateHeader has the state after a message, in JSON.
	stateHeader = "Berth-State"
	// batchMax is how many messages a batch may have; a server allows 1000 by default.
	batchMax = 500

	batchID, batchSequence, batchCommit = "Nats-Batch-Id", "Nats-Batch-Sequence", "Nats-Batch-Commit"
)

// Log keeps the rows of a store in a stream.
type Log struct {
	target *target
	owner  dbms.Owner

	connecting sync.Mutex
	connected  *conn
	closed     bool

	// mu is held while something is written. meta is the state that this process has last written, with the message last of the
	// stream. lost means that it may have written more. deletions are messages that say that keys were deleted.
	mu        sync.Mutex
	meta      mirror.Meta
	last      uint64
	lost      error
	deletions []uint64
}

var _ mirror.Log = (*Log)(nil)

// New returns the log of a space. It connects to nothing.
func New(c mirror.Config, owner dbms.Owner) (*Log, error) {
	t, err := parse(c)
	if err != nil {
		return nil, err
	}
	return &Log{target: t, owner: owner}, nil
}

func (l *Log) String() string { return l.target.String() }

func (l *Log) metaSubject() string { return l.target.Path + ".meta" }

func (l *Log) rowsOf(generation int64) string {
	return l.target.Path + ".rows." + strconv.FormatInt(generation, 10) + "."
}

func (l *Log) filesOf(set int64) string {
	return l.target.Path + ".files." + strconv.FormatInt(set, 10) + "."
}

// call runs a call that reads. A connection that was released meanwhile is replaced.
func (l *Log) call(ctx context.Context, do func(context.Context, *conn) error) error {
	limited, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	for range attempts {
		c, err := l.connect(limited)
		if err != nil {
			return err
		}
		if err = do(limited, c); err == nil || !errors.Is(err, nats.ErrConnectionClosed) || ctx.Err() != nil {
			return err
		}
	}
	return &callError{nats.ErrConnectionClosed}
}

// Epoch returns the epoch of the stream; 0 if it has none.
func (l *Log) Epoch(ctx context.Context) (epoch int64, err error) {
	err = l.call(ctx, func(ctx context.Context, c *conn) error {
		if c.stream == nil {
			return nil
		}
		msg, err := c.stream.GetLastMsgForSubject(ctx, l.metaSubject())
		if errors.Is(err, jetstream.ErrMsgNotFound) || errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil
		}
		if err != nil {
			return &callError{err}
		}
		m, err := l.decode(msg.Header)
		epoch = m.Epoch
		return err
	})
	return epoch, err
}

// State returns the state of the stream.
func (l *Log) State(ctx context.Context) (mirror.State, error) {
	m, _, err := l.read(ctx)
	return m.State(), err
}

// read returns the state, and the sequence number of the last message; zeros if there is none.
func (l *Log) read(ctx context.Context) (m mirror.Meta, last uint64, err error) {
	err = l.call(ctx, func(ctx context.Context, c *conn) error {
		m, last = mirror.Meta{}, 0
		if c.stream == nil {
			return nil
		}
		for range attempts {
			info, err := c.stream.Info(ctx)
			if err != nil {
				return &callError{err}
			}
			if last = info.State.LastSeq; info.State.Msgs == 0 {
				return nil
			}
			msg, err := c.stream.GetMsg(ctx, last)
			if errors.Is(err, jetstream.ErrMsgNotFound) {
				continue // another one has replaced it
			}
			if err != nil {
				return &callError{err}
			}
			m, err = l.decode(msg.Header)
			return err
		}
		return fmt.Errorf("%w: the last message of the stream is missing", sqlite.ErrDamaged)
	})
	return m, last, err
}

func (l *Log) decode(h nats.Header) (m mirror.Meta, err error) {
	if err := json.Unmarshal([]byte(h.Get(stateHeader)), &m); err != nil || m.Epoch <= 0 || m.Revision < 0 {
		return mirror.Meta{}, fmt.Errorf("%w: the stream %s has messages of another program; use a stream of its own for each space", sqlite.ErrNotStore, l.target.Path)
	}
	return m, m.State().Owner.CheckIs(l.owner)
}

// TakeOver makes this process the one that writes. It creates the stream if it is missing.
func (l *Log) TakeOver(ctx context.Context, expected *int64) (mirror.State, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for range attempts {
		m, last, err := l.read(ctx)
		if err == nil {
			err = m.CheckExpected(l.String(), expected)
		}
		if err != nil {
			return mirror.State{}, err
		}
		if m.Epoch == 0 {
			if err := l.call(ctx, l.create); err != nil {
				return mirror.State{}, err
			}
		}
		next := m
		next.Space, next.ID, next.Epoch = l.owner.Space, l.owner.ID, m.Epoch+1
		done, err := l.publish(ctx, last, []message{{subject: l.metaSubject(), state: next}})
		if err != nil {
			return mirror.State{}, err
		}
		if done {
			l.lost, l.deletions = nil, nil
			return m.State(), l.clean(ctx)
		}
	}
	return mirror.State{}, errors.New("other processes take the store over all the time")
}

// clean deletes what a process has left that ended in the middle of replacing rows or files. It deletes no later messages, which
// may be those of another process.
func (l *Log) clean(ctx context.Context) error {
	before := l.last
	return l.call(ctx, func(ctx context.Context, c *conn) error {
		for _, subject := range []string{
			l.rowsOf(l.meta.Generation - 1), l.rowsOf(l.meta.Generation + 1), l.filesOf(l.meta.FilesSet - 1), l.filesOf(l.meta.FilesSet + 1),
		} {
			if err := c.stream.Purge(ctx, jetstream.WithPurgeSubject(subject+">"), jetstream.WithPurgeSequence(before)); err != nil {
				return &callError{err}
			}
		}
		return nil
	})
}

// Reconnect connects again, and makes sure that nothing of the earlier connection can take effect any more.
func (l *Log) Reconnect(ctx context.Context) (mirror.State, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.Release(); err != nil {
		return mirror.State{}, err
	}
	for range attempts {
		m, last, err := l.read(ctx)
		if err == nil {
			err = m.CheckEpoch(l.String(), l.meta.Epoch)
		}
		if err != nil {
			return mirror.State{}, err
		}
		done, err := l.publish(ctx, last, []message{{subject: l.metaSubject(), state: m}})
		if err != nil {
			return mirror.State{}, err
		}
		if done {
			l.lost = nil
			return m.State(), nil
		}
	}
	return mirror.State{}, &lostError{errors.New("the state changes all the time")}
}

// message is a message of a change, with the state after it.
type message struct {
	subject string
	data    []byte
	state   mirror.Meta
}

// change writes messages, if no other process has written any. The caller has mu.
func (l *Log) change(ctx context.Context, messages []message) error {
	if l.lost != nil {
		return &lostError{l.lost}
	}
	done, err := l.publish(ctx, l.last, messages)
	if err != nil {
		if l.Fault(err) == dbms.Lost {
			l.lost = err
		}
		return err
	}
	if done {
		return nil
	}
	l.lost = errors.New("another connection of this process has changed the state")
	m, _, err := l.read(ctx)
	if err == nil {
		err = m.CheckEpoch(l.String(), l.meta.Epoch)
	}
	if err == nil {
		err = &lostError{l.lost}
	}
	return err
}

// publish writes messages after the message last, or none of them, if there is a later one. Several are an atomic batch.
func (l *Log) publish(ctx context.Context, last uint64, messages []message) (done bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	c, err := l.connect(ctx)
	if err != nil {
		return false, err
	}
	id := rand.Text()
	for i, m := range messages {
		msg, err := m.encode()
		if err != nil {
			return false, err
		}
		if i == 0 {
			msg.Header.Set(jetstream.ExpectedLastSeqHeader, strconv.FormatUint(last, 10))
		}
		if len(messages) > 1 {
			msg.Header.Set(batchID, id)
			msg.Header.Set(batchSequence, strconv.Itoa(i+1))
		}
		if i < len(messages)-1 {
			if err := c.nats.PublishMsg(msg); err != nil {
				return false, &callError{err}
			}
			continue
		}
		if len(messages) > 1 {
			msg.Header.Set(batchCommit, "1")
		}
		reply, err := c.nats.RequestMsgWithContext(ctx, msg)
		if err != nil {
			return false, &lostError{err}
		}
		if done, err = acknowledged(reply.Data, last+uint64(len(messages))); done {
			l.meta, l.last = m.state, last+uint64(len(messages))
		}
		return done, err
	}
	return false, errors.New("there is nothing to write")
}

func (m *message) encode() (*nats.Msg, error) {
	state, err := json.Marshal(m.state)
	if err != nil {
		return nil, err
	}
	msg := nats.NewMsg(m.subject)
	msg.Header.Set(stateHeader, string(state))
	msg.Data = m.data
	return msg, nil
}

// acknowledged reads a response. done is false if there is a later message than expected.
func acknowledged(response []byte, sequence uint64) (done bool, err error) {
	var ack struct {
		jetstream.PubAck
		Error *jetstream.APIError `json:"error"`
	}
	if err := json.Unmarshal(response, &ack); err != nil {
		return false, &lostError{errors.New("the response of the server is not one of JetStream")}
	}
	switch {
	case ack.Error != nil && (ack.Error.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence || ack.Error.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequenceConstant):
		return false, nil
	case ack.Error != nil:
		return false, &callError{ack.Error}
	case ack.Sequence != sequence:
		return false, &lostError{fmt.Errorf("the message has sequence number %d, not %d", ack.Sequence, sequence)}
	}
	return true, nil
}

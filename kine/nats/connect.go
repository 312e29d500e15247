// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package nats

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/berth-dev/berth/kine/dbms"
	"github.com/berth-dev/berth/kine/mirror"
	"github.com/berth-dev/berth/kine/sqlite"
)

const (
	// connectTimeout limits how long a connection takes.
	connectTimeout = 5 * time.Second
	// callTimeout limits a call to the server.
	callTimeout = 10 * time.Second
	// pingInterval is how often an unresponsive connection is examined, and maxPings how often in vain.
	pingInterval, maxPings = 5 * time.Second, 2
	// minPayload is how large messages must be allowed to be: a value of 1.5 MiB, and what is around it.
	minPayload = 2_000_000
	// maxRow is how many bytes a key and its value may have; maxKey is how many a key may have, for NATS limits a line to 4096.
	maxRow, maxKey = 3 << 19, 2048
	// maxReplicas is how many replicas JetStream allows.
	maxReplicas = 5

	replicasParameter = "replicas"
)

// target is what a DSN says, such as nats://user:password@host:4222,host2:4222/STREAM?replicas=3.
type target struct {
	*mirror.Target
	replicas int
	tls      *tls.Config
}

func parse(c mirror.Config) (*target, error) {
	parsed, err := c.Parse("nats", "tls")
	if err != nil {
		return nil, err
	}
	t := &target{Target: parsed, replicas: 1}
	if strings.ContainsAny(t.Path, " \t\r\n.*>/\\") {
		return nil, errors.New("the name of the stream in the DSN must have no spaces, and none of . * > / \\")
	}
	for name, values := range t.Parameters {
		if name != replicasParameter || len(values) != 1 {
			return nil, fmt.Errorf("the DSN may have one parameter, %s", replicasParameter)
		}
		if t.replicas, err = strconv.Atoi(values[0]); err != nil || t.replicas < 1 || t.replicas > maxReplicas {
			return nil, fmt.Errorf("the parameter %s must be from 1 to %d", replicasParameter, maxReplicas)
		}
	}
	if t.Secure || len(c.CA) > 0 || len(c.Cert) > 0 {
		t.tls, err = c.TLS()
	}
	return t, err
}

// String names the servers and the stream.
func (t *target) String() string { return "NATS at " + strings.Join(t.Hosts, ",") + "/" + t.Path }

// conn is a connection.
type conn struct {
	nats   *nats.Conn
	js     jetstream.JetStream
	stream jetstream.Stream // nil if it doesn't exist
}

// connect returns the connection, and connects if it isn't connected.
func (l *Log) connect(ctx context.Context) (*conn, error) {
	l.connecting.Lock()
	defer l.connecting.Unlock()
	if l.closed {
		return nil, &lostError{errors.New("it is closed")}
	}
	if c := l.connected; c != nil && !c.nats.IsClosed() {
		return c, l.find(ctx, c)
	}
	options := []nats.Option{
		nats.Name("berth"), nats.Timeout(connectTimeout), nats.NoReconnect(), nats.PingInterval(pingInterval), nats.MaxPingsOutstanding(maxPings),
		nats.FlusherTimeout(connectTimeout), nats.IgnoreDiscoveredServers(),
		nats.ErrorHandler(func(*nats.Conn, *nats.Subscription, error) {}), // the default one writes to the process's standard error
	}
	if l.target.User != "" {
		options = append(options, nats.UserInfo(l.target.User, l.target.Password))
	}
	if l.target.tls != nil {
		options = append(options, nats.Secure(l.target.tls))
	}
	opened, err := nats.Connect("nats://"+strings.Join(l.target.Hosts, ",nats://"), options...)
	if err != nil {
		return nil, &callError{fmt.Errorf("connect: %w", err)}
	}
	if limit := opened.MaxPayload(); limit < minPayload {
		opened.Close()
		return nil, fmt.Errorf("the server allows messages of %d bytes; set its max_payload to 2MB or more", limit)
	}
	js, err := jetstream.New(opened, jetstream.WithDefaultTimeout(callTimeout))
	if err != nil {
		opened.Close()
		return nil, &callError{err}
	}
	l.connected = &conn{nats: opened, js: js}
	return l.connected, l.find(ctx, l.connected)
}

// find looks for the stream, if it isn't known yet.
func (l *Log) find(ctx context.Context, c *conn) error {
	if c.stream != nil {
		return nil
	}
	stream, err := c.js.Stream(ctx, l.target.Path)
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil
	}
	if err != nil {
		return &callError{err}
	}
	if err := l.checkStream(stream.CachedInfo().Config); err != nil {
		return err
	}
	c.stream = stream
	return nil
}

// create creates the stream, if it doesn't exist.
func (l *Log) create(ctx context.Context, c *conn) error {
	l.connecting.Lock()
	defer l.connecting.Unlock()
	if c.stream != nil {
		return nil
	}
	_, err := c.js.CreateStream(ctx, jetstream.StreamConfig{
		Name: l.target.Path, Subjects: []string{l.target.Path + ".>"}, Description: "The store of a space of Berth",
		Storage: jetstream.FileStorage, Replicas: l.target.replicas, MaxMsgsPerSubject: 1, AllowAtomicPublish: true,
		Metadata: map[string]string{createdBy: createdByBerth},
	})
	if err != nil && !errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		return &callError{fmt.Errorf("create the stream: %w", err)}
	}
	return l.find(ctx, c)
}

const createdBy, createdByBerth = "created-by", "berth"

// checkStream fails if a stream could lose what Berth stores in it, or is that of something else.
func (l *Log) checkStream(c jetstream.StreamConfig) error {
	wrong := map[string]bool{
		"the subjects " + l.target.Path + ".>": len(c.Subjects) != 1 || c.Subjects[0] != l.target.Path+".>",
		"file storage":                         c.Storage != jetstream.FileStorage,
		"the retention policy limits":          c.Retention != jetstream.LimitsPolicy,
		"one message per subject":              c.MaxMsgsPerSubject != 1,
		"atomic publishing allowed":            !c.AllowAtomicPublish,
		"direct gets not allowed":              c.AllowDirect, // a replica may be behind
		"no limit of age or messages":          c.MaxAge != 0 || c.MaxMsgs > 0,
		"the discard policy new":               c.MaxBytes > 0 && c.Discard != jetstream.DiscardNew,
		"deletions and purges not denied":      c.DenyDelete || c.DenyPurge || c.Sealed,
		"acknowledgments":                      c.NoAck,
	}
	for what, is := range wrong {
		if is {
			return fmt.Errorf("%w: the stream %s must have %s", sqlite.ErrNotStore, l.target.Path, what)
		}
	}
	return nil
}

// Release closes the connection until the next use.
func (l *Log) Release() error {
	if l.mu.TryLock() { // otherwise, it is in use, or a new connection is wanted
		if l.lost == nil {
			ctx, cancel := context.WithTimeout(context.Background(), connectTimeout)
			l.purge(ctx, 0)
			cancel()
		}
		l.mu.Unlock()
	}
	l.connecting.Lock()
	defer l.connecting.Unlock()
	l.disconnect()
	return nil
}

// Close closes the connection. The log can't be used afterwards.
func (l *Log) Close() error {
	l.connecting.Lock()
	defer l.connecting.Unlock()
	l.closed = true
	l.disconnect()
	return nil
}

func (l *Log) disconnect() {
	if l.connected != nil {
		l.connected.nats.Close()
		l.connected = nil
	}
}

// callError is an error of a call to NATS.
type callError struct{ err error }

func (e *callError) Error() string { return e.err.Error() }
func (e *callError) Unwrap() error { return e.err }

// lostError makes an error a Lost one.
type lostError struct{ err error }

func (e *lostError) Error() string { return e.err.Error() }
func (e *lostError) Unwrap() error { return e.err }

// These are codes of JetStream's errors.
const (
	storageFull         = 10047 // of the server
	insufficient        = 10023
	accountFull         = 10002
	storeFailed         = 10077 // with the description below, if the stream is full
	maxBytesDescription = "maximum bytes exceeded"
	notAllowed          = 10174 // atomic batches
)

// Fault classifies an error of NATS.
func (l *Log) Fault(err error) dbms.Fault {
	var lost *lostError
	var call *callError
	var api *jetstream.APIError
	switch {
	case errors.As(err, &lost):
		return dbms.Lost
	case errors.Is(err, mirror.ErrTooLarge):
		return dbms.TooLarge
	case !errors.As(err, &call):
		return dbms.None
	case errors.Is(err, nats.ErrAuthorization), errors.Is(err, nats.ErrPermissionViolation), errors.Is(err, nats.ErrAuthExpired):
		return dbms.Failed
	case !errors.As(err, &api):
		return dbms.Lost
	}
	switch api.ErrorCode {
	case storageFull, insufficient, accountFull:
		return dbms.Full
	case storeFailed:
		if api.Description == maxBytesDescription {
			return dbms.Full
		}
	case notAllowed:
		return dbms.Failed
	}
	return dbms.Lost
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	kineserver "github.com/k3s-io/kine/pkg/server"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/kine/dbms"
	"github.com/berth-dev/berth/kine/etcd"
	"github.com/berth-dev/berth/kine/mirror"
	"github.com/berth-dev/berth/kine/mysql"
	"github.com/berth-dev/berth/kine/nats"
	"github.com/berth-dev/berth/kine/postgres"
	"github.com/berth-dev/berth/kine/remote"
	"github.com/berth-dev/berth/kine/s3"
	"github.com/berth-dev/berth/kine/sqlite"
)

// ServerType is a type of database server.
type ServerType string

// These are the types of database servers.
const (
	PostgreSQL ServerType = "PostgreSQL"
	MySQL      ServerType = "MySQL" // or MariaDB
	Etcd       ServerType = "Etcd"
	NATS       ServerType = "NATS"
	S3         ServerType = "S3" // object storage with the S3 protocol
)

// Cached reports whether a store in such a server has a cache on the disk.
func (t ServerType) Cached() bool { return t == Etcd || t == NATS || t == S3 }

// HasClientCertificates reports whether a client may prove who it is to such a server by a certificate of Server.Cert.
func (t ServerType) HasClientCertificates() bool { return t.Cached() }

// Server is a database in a server, which has the store of one space.
type Server struct {
	Type ServerType
	// DSN is how to connect to the database, with the password. Errors and logs don't contain it.
	DSN string
	// CA has certificates in PEM, with one of which the server must prove who it is. If it is empty, the DSN decides.
	CA []byte
	// Cert and Key are a certificate of the client and its key, in PEM, for a server of type Etcd, NATS, or S3. They may be empty.
	Cert, Key []byte
	// ID is the ID of the space. A database that was opened for another space or ID is never opened.
	ID string
	// Expected, if not nil, is the epoch of the database that [ReadFiles] returned. If another process has opened the database since,
	// it is not taken over from that: Open fails with ErrTakenOver.
	Expected *int64
}

// database returns the database of a space, with a cache at a path, if it has one, of a store that may have some bytes. It opens
// nothing.
func (s Server) database(space, cache string, maxBytes int64) (db serverDatabase, err error) {
	owner := dbms.Owner{Space: space, ID: s.ID}
	var dialect *remote.Dialect
	switch s.Type {
	case PostgreSQL:
		dialect, err = postgres.New(s.DSN, s.CA)
	case MySQL:
		dialect, err = mysql.New(s.DSN, s.CA)
	case Etcd, NATS, S3:
		var log mirror.Log
		if log, err = s.log(owner); err == nil {
			db = keyValueServer{mirror.New(log, owner, cache, maxBytes)}
		}
	default:
		err = fmt.Errorf("the type must be %s, %s, %s, %s, or %s, not %q", PostgreSQL, MySQL, Etcd, NATS, S3, s.Type)
	}
	if err != nil {
		return nil, err
	}
	if dialect != nil {
		db = sqlServer{remote.New(dialect, owner)}
	}
	if s.Expected != nil {
		db.Expect(*s.Expected)
	}
	return db, nil
}

func (s Server) log(owner dbms.Owner) (mirror.Log, error) {
	config := mirror.Config{DSN: s.DSN, CA: s.CA, Cert: s.Cert, Key: s.Key}
	switch s.Type {
	case NATS:
		return nats.New(config, owner)
	case S3:
		return s3.New(config, owner)
	default:
		return etcd.New(config, owner)
	}
}

func openServer(ctx context.Context, o Options, log klog.Logger) (*Store, error) {
	if o.Server.Type.Cached() && o.Path == "" {
		return nil, fmt.Errorf("%w: it needs a path for its cache", ErrServer)
	}
	db, err := o.Server.database(o.Name, o.Path, o.MaxBytes)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrServer, err)
	}
	s := &Store{path: db.String()}
	if err := s.serve(ctx, db, o, log); err != nil {
		return nil, serverError(db, err)
	}
	return s, nil
}

// serverError is an error of a database.
func serverError(db serverDatabase, err error) error {
	if text := err.Error(); len(text) > maxErrorText { // somebody who has the role of the space may have written it
		err = &shortError{strings.ToValidUTF8(text[:maxErrorText], "") + " ...", err}
	}
	if errors.Is(err, ErrDamaged) || errors.Is(err, context.Canceled) {
		return fmt.Errorf("open store %s: %w", db, err)
	}
	return fmt.Errorf("%w: %s: %w", ErrServer, db, err)
}

// callTime limits calls for which a database with few rows needs no more than a moment. One that somebody else has changed may never answer.
const callTime = time.Minute

// maxErrorText is how long an error of a server may be.
const maxErrorText = 2048

// shortError has the beginning of the text of an error.
type shortError struct {
	text string
	err  error
}

func (e *shortError) Error() string { return e.text }
func (e *shortError) Unwrap() error { return e.err }

// serve starts the engine on a database, and the client.
func (s *Store) serve(ctx context.Context, db database, o Options, log klog.Logger) (err error) {
	if s.engine, err = startEngine(ctx, db, o, log); err != nil {
		return err
	}
	// The interval is for kine's own watches, which aren't used.
	b := &bridge{
		KVServerBridge: kineserver.New(s.engine.backend, "http", 0, etcdVersion),
		backend:        s.engine.backend,
		leases:         leases{clock.RealClock{}},
	}
	s.client = newClient(b, watcher{s.engine.backend})
	s.dialer = &dialer{bridge: b}
	s.close = sync.OnceValue(s.shutdown)
	return nil
}

// RestoreServer replaces the data of a space in a database server by that of a snapshot, as [Restore] does for a file. The
// snapshot may be from any type of store. The database is taken over, so that no open store can write to it any more. ctx
// limits the whole call. RestoreServer returns the epoch in which it has taken the database over, for [Server.Expected].
//
// It fails with ErrNotStore or ErrDamaged if the snapshot is not a sound store, and with ErrOtherSpace if the database is that
// of another space. After an error, the database has what it had before.
func RestoreServer(ctx context.Context, snapshot, space string, server Server) (epoch int64, err error) {
	err = withServer(ctx, space, server, func(db serverDatabase) error {
		epoch = db.Epoch()
		return load(ctx, snapshot, db)
	})
	if err != nil {
		return 0, fmt.Errorf("restore snapshot %s: %w", snapshot, err)
	}
	return epoch, nil
}

// DropServer deletes the tables of a space in a database server. It fails with ErrOtherSpace if they are another space's.
func DropServer(ctx context.Context, space string, server Server) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	err := withServer(ctx, space, server, func(db serverDatabase) error { return db.Drop(ctx) })
	if err != nil {
		return fmt.Errorf("delete the store of space %s: %w", space, err)
	}
	return nil
}

// CopyServer writes a consistent copy of the store of a space in a database server to path, where no file may exist, as
// [Store.Snapshot] does. The store is not taken over, so that it may be opened meanwhile, which ends the copy.
func CopyServer(ctx context.Context, space string, server Server, path string) error {
	quietKine()
	db, err := server.database(space, "", 0)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrServer, err)
	}
	if err = db.OpenToRead(ctx); err == nil {
		err = writeCopy(path, func(tmp string) error { return db.Copy(ctx, tmp) }, func(tmp string) error { return sqlite.CheckWhole(ctx, tmp, "quick_check") })
	}
	if err = errors.Join(err, db.Close(true)); err != nil {
		return serverError(db, err)
	}
	return nil
}

// withServer takes a database over for a while.
func withServer(ctx context.Context, space string, server Server, use func(serverDatabase) error) error {
	quietKine()
	db, err := server.database(space, "", 0)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrServer, err)
	}
	if err = db.TakeOver(ctx); err == nil {
		err = use(db)
	}
	if err = errors.Join(err, db.Close(true)); err != nil {
		return serverError(db, err)
	}
	return nil
}

func load(ctx context.Context, snapshot string, db serverDatabase) error {
	if n := sqlite.SizeOf(snapshot + "-wal"); n > 0 {
		return fmt.Errorf("%w: it has a log beside it, so it is a store that is open or was killed; make a snapshot of that", ErrNotStore)
	}
	if err := sqlite.CheckWhole(ctx, snapshot, "integrity_check"); err != nil {
		return err
	}
	return db.Load(ctx, snapshot)
}

// Files are what a process keeps of a space beside its store, such as keys. A store in a server has a copy of them, so that
// another process can serve the space.
type Files = dbms.Files

// ErrFilesNewer means that another process has saved files since those that this process has.
var ErrFilesNewer = errors.New("the database has newer files of the space")

// ReadFiles returns the files of a space from its database in a server, and the epoch of the database, for [Server.Expected].
// The database is not taken over. Files.Epoch is 0 if there are no files. It fails with ErrOtherSpace if the database is that of
// another space.
func ReadFiles(ctx context.Context, space string, server Server) (files Files, epoch int64, err error) {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	quietKine()
	db, err := server.database(space, "", 0)
	if err != nil {
		return Files{}, 0, fmt.Errorf("%w: %w", ErrServer, err)
	}
	if err = db.OpenToReadFiles(ctx); err == nil {
		files, epoch, err = db.ReadFiles(ctx)
	}
	if err = errors.Join(err, db.Close(true)); err != nil {
		return Files{}, 0, serverError(db, err)
	}
	return files, epoch, nil
}

// SaveFiles saves files of a space whose database has none. It takes the database over for a moment.
func SaveFiles(ctx context.Context, space string, server Server, data map[string][]byte) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	err := withServer(ctx, space, server, func(db serverDatabase) error {
		saved, err := db.SavedFiles(ctx)
		if err != nil || saved.Epoch > 0 {
			return err
		}
		return db.SaveFiles(ctx, data)
	})
	if err != nil {
		return fmt.Errorf("save the files of space %s: %w", space, err)
	}
	return nil
}

// Epoch returns how often the database of a store in a server had been opened when this process opened it; 0 for a file.
func (s *Store) Epoch() int64 {
	if db, is := s.engine.db.(serverDatabase); is {
		return db.Epoch()
	}
	return 0
}

// CheckFiles fails with ErrFilesNewer if the database of a store in a server has files that were saved after the epoch known.
func (s *Store) CheckFiles(ctx context.Context, known int64) error {
	return s.inServer(ctx, func(ctx context.Context, db serverDatabase) error {
		saved, err := db.SavedFiles(ctx)
		if err == nil && saved.Epoch > known {
			err = fmt.Errorf("%w: they are of epoch %d, and those here of %d", ErrFilesNewer, saved.Epoch, known)
		}
		return err
	})
}

// SaveFiles saves the files of a space with a store in a server, if they differ from what is saved. It fails if another process
// has opened the store.
func (s *Store) SaveFiles(ctx context.Context, data map[string][]byte) error {
	return s.inServer(ctx, func(ctx context.Context, db serverDatabase) error { return db.SaveFiles(ctx, data) })
}

// inServer uses the database of a store in a server. It does nothing for a file.
func (s *Store) inServer(ctx context.Context, do func(context.Context, serverDatabase) error) error {
	db, is := s.engine.db.(serverDatabase)
	if !is {
		return nil
	}
	if err := s.engine.backend.enter(); err != nil {
		return err
	}
	defer s.engine.backend.calls.Done()
	ctx, cancel := withTimeout(ctx, db)
	defer cancel()
	err := do(ctx, db)
	if err != nil && !errors.Is(err, ErrFilesNewer) {
		_ = s.engine.health.see(err)
	}
	if err != nil {
		return fmt.Errorf("files of the space in the %s: %w", db, err)
	}
	return nil
}

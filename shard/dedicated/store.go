// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dedicated

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"

	"github.com/berth-dev/berth/control"
)

// These headers describe a store that is sent.
const (
	ChecksumHeader = "X-Berth-Sha256"   // SHA-256 of the store, in hex
	RevisionHeader = "X-Berth-Revision" // revision of its last row, and
	RowHeader      = "X-Berth-Row"      // the digest of that row, for the base of a replica
	// RowsChecksumHeader is the SHA-256 of the rows after the store, in hex.
	RowsChecksumHeader = "X-Berth-Rows-Sha256"
)

// These are the paths of the commands about a space's store and keys.
const (
	StorePath    = "/store"    // GET a consistent copy of the store; PUT replaces it
	IdentityPath = "/identity" // PUT the space's keys
	BeginPath    = "/begin"    // POST: run the space from now on
	EndPath      = "/end"      // POST: stop the space, and don't run it again
	StatePath    = "/state"    // GET a [State]
	RestoreParam = "restore"   // of PUT StorePath: the store is a snapshot
	OpeningParam = "opening"   // of GET StorePath: fail if the store has been closed since this opening, a number
	RowsParam    = "rows"      // of PUT StorePath: the last bytes, as many as this, are a file of rows for [snapshot.Append]
)

// State is the state of a space's store in its process.
type State struct {
	Begun    bool   `json:"begun"`    // the process must run the space
	HasStore bool   `json:"hasStore"` // it has a store
	Revision int64  `json:"revision"` // changes with the store; 0 if it is unknown
	Config   string `json:"config"`   // digest of the configuration that the process uses
	Identity string `json:"identity"` // [IdentityDigest] of the keys that the process uses
	// Waits says that another process has opened the store in a database server since, and that the space starts after [Process.Begin].
	Waits bool `json:"waits,omitempty"`
}

// IdentityDigest returns the digest of the files of [Process.PutIdentity].
func IdentityDigest(files map[string][]byte) string {
	hash := sha256.New()
	for _, path := range slices.Sorted(maps.Keys(files)) {
		fmt.Fprintf(hash, "%d %s %d ", len(path), path, len(files[path]))
		hash.Write(files[path])
	}
	return hex.EncodeToString(hash.Sum(nil))
}

// State asks the process for the state of its store.
func (p *Process) State(ctx context.Context) (state State, err error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	err = p.client.Do(ctx, http.MethodGet, StatePath, &state)
	return state, err
}

// ErrChecksum is returned if a received store differs from the one that was sent.
var ErrChecksum = errors.New("the checksum of the received store does not match")

// CopyStore writes a consistent copy of the space's store to path, where no file may exist. It fails if the copy does not
// advance, because a tenant may have taken over the process, or if admit refuses its size. admit is called with the size in
// bytes before anything is written, and what it returns once the copy is complete or has failed. There is no limit of the total
// time, however large the store is. The file is synced to disk when CopyStore returns.
func (p *Process) CopyStore(ctx context.Context, path string, admit func(size int64) (end func(), err error)) error {
	_, err := p.copyStore(ctx, StorePath, path, admit)
	return err
}

// CopyBase is [Process.CopyStore] for the base of a replica. It also returns what the process says of the last row: its revision, and its digest.
// The process refuses if the store has been closed since that opening: the volume may be another one since.
func (p *Process) CopyBase(ctx context.Context, opening uint64, path string, admit func(size int64) (end func(), err error)) (revision int64, row string, err error) {
	query := url.Values{OpeningParam: {strconv.FormatUint(opening, 10)}}
	header, err := p.copyStore(ctx, StorePath+"?"+query.Encode(), path, admit)
	if err == nil {
		revision, err = strconv.ParseInt(header.Get(RevisionHeader), 10, 64)
	}
	return revision, header.Get(RowHeader), err
}

func (p *Process) copyStore(ctx context.Context, command, path string, admit func(size int64) (end func(), err error)) (http.Header, error) {
	ctx, pace, stop := withPace(ctx)
	defer stop()
	req, err := control.NewRequest(ctx, http.MethodGet, command, nil)
	if err != nil {
		return nil, err
	}
	resp, err := p.client.Send(req)
	if err != nil {
		return nil, fmt.Errorf("copy the store of space %s: %w", p.space, withCause(ctx, err))
	}
	defer resp.Body.Close()
	if resp.ContentLength < 0 {
		return nil, fmt.Errorf("copy the store of space %s: the process doesn't say how many bytes it has", p.space)
	}
	end, err := admit(resp.ContentLength)
	if err != nil {
		return nil, fmt.Errorf("copy the store of space %s: %w", p.space, err)
	}
	defer end()
	body := &pacedReader{Reader: resp.Body, pace: pace}
	if err := Receive(body, resp.ContentLength, resp.Header.Get(ChecksumHeader), path); err != nil {
		return nil, fmt.Errorf("copy the store of space %s: %w", p.space, withCause(ctx, err))
	}
	return resp.Header, nil
}

// withCause adds to the error of a call why ctx has ended.
func withCause(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// PutStore makes the process replace its store by the one in a file, or restore the snapshot in a file, atomically. The
// space is stopped for that, and runs again afterwards if it must run. It fails if the transfer does not advance, like
// [Process.CopyStore].
func (p *Process) PutStore(ctx context.Context, path string, restore bool) error {
	return p.putStore(ctx, path, "", restore)
}

// PutReplica makes the process restore the store in a file, with the rows in another file, as [Process.PutStore] does. See [snapshot.Fetch].
func (p *Process) PutReplica(ctx context.Context, path, rows string) error {
	return p.putStore(ctx, path, rows, true)
}

func (p *Process) putStore(ctx context.Context, path, rows string, restore bool) error {
	file, size, sum, err := OpenSummed(path)
	if err != nil {
		return err
	}
	defer file.Close()
	from, query, header := io.Reader(file), url.Values{RestoreParam: {strconv.FormatBool(restore)}}, http.Header{ChecksumHeader: {sum}}
	if rows != "" {
		after, more, sum, err := OpenSummed(rows)
		if err != nil {
			return err
		}
		defer after.Close()
		query.Set(RowsParam, strconv.FormatInt(more, 10))
		header.Set(RowsChecksumHeader, sum)
		from, size = io.MultiReader(file, after), size+more
	}
	ctx, pace, stop := withPace(ctx)
	defer stop()
	body := &pacedReader{Reader: from, pace: pace, sent: true}
	req, err := control.NewRequest(ctx, http.MethodPut, StorePath+"?"+query.Encode(), body)
	if err != nil {
		return err
	}
	req.ContentLength, req.Header = size, header
	return p.send(req, "send the store of space "+p.space)
}

// Commands returns the client of the commands of the process.
func (p *Process) Commands() *control.Client { return p.client }

// PutIdentity replaces these files in the space's directory of the process, by path, and removes all other keys. If
// they differ from before, the space restarts.
func (p *Process) PutIdentity(ctx context.Context, files map[string][]byte) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	data, err := json.Marshal(files)
	if err != nil {
		return fmt.Errorf("send the keys of space %s: %w", p.space, err)
	}
	req, err := control.NewRequest(ctx, http.MethodPut, IdentityPath, bytes.NewReader(data))
	if err != nil {
		return err
	}
	return p.send(req, "send the keys of space "+p.space)
}

// Begin makes the process run the space, also after a restart of the process.
func (p *Process) Begin(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return p.client.Do(ctx, http.MethodPost, BeginPath, nil)
}

// End makes the process stop the space, and not run it again until Begin.
func (p *Process) End(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return p.client.Do(ctx, http.MethodPost, EndPath, nil)
}

func (p *Process) send(req *http.Request, doing string) error {
	resp, err := p.client.Send(req)
	if err != nil {
		return fmt.Errorf("%s: %w", doing, withCause(req.Context(), err))
	}
	return resp.Body.Close()
}

// OpenSummed opens a file, and returns its size and its SHA-256 in hex. The caller must close it.
func OpenSummed(path string) (file *os.File, size int64, sum string, err error) {
	if file, err = os.Open(path); err != nil {
		return nil, 0, "", err
	}
	hash := sha256.New()
	size, err = io.Copy(hash, file)
	if err == nil {
		_, err = file.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, 0, "", errors.Join(err, file.Close())
	}
	return file, size, hex.EncodeToString(hash.Sum(nil)), nil
}

// Receive writes size bytes to a file at path, where no file may exist. It fails with [ErrChecksum] if their checksum
// differs from sum. The file is synced to disk if there is no error, and deleted otherwise.
func Receive(from io.Reader, size int64, sum, path string) (err error) {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, file.Close()); err != nil {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	hash := sha256.New()
	n, err := io.Copy(io.MultiWriter(file, hash), io.LimitReader(from, size))
	switch {
	case err != nil:
		return err
	case n != size || sum != hex.EncodeToString(hash.Sum(nil)):
		return ErrChecksum
	}
	return file.Sync()
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/internal/fsutil"
	"github.com/berth-dev/berth/internal/spacefiles"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/platform/datadir"
)

// maxFiles is how many bytes the files of a space may have in all, beside the store.
const maxFiles = 64 << 20

// completeFile is in a directory that was received completely.
const completeFile = "move.complete"

// Receiver receives copies of spaces. It is safe for concurrent use.
type Receiver struct {
	// Dir has a directory for each space that is being received.
	Dir string
	// Begin fails if a space may not be received now. Otherwise, nothing else is done to the space until end is called.
	Begin func(ctx context.Context, space string) (end func(), err error)
	// Admit fails if a store of this size, in bytes, does not fit on the disk. Otherwise, the space on the disk is kept until end is called.
	Admit func(space string, size int64) (end func(), err error)
	// Arrived, if set, is called with the path of a store that was received completely, which becomes that of the space when [Receiver.Take]
	// moves it. Requests for the space wait, so Arrived must not block.
	Arrived func(store string)
	// Has reports whether this shard has a space whose store has this ID, and has moved more often than newer.
	Has func(space, store string, newer int64) bool

	mu   sync.Mutex
	base map[string]base // by space
}

// base is the first part of a copy, and the space on the disk that is kept for the rest.
type base struct {
	sums sums
	end  func()
}

// Serve adds the commands for other shards.
func (r *Receiver) Serve(mux *http.ServeMux) {
	mux.Handle("PUT "+basePath, control.Answer(func(q *http.Request) (any, error) { return nil, r.receive(q, r.receiveBase) }))
	mux.Handle("PUT "+restPath, control.Answer(func(q *http.Request) (any, error) { return nil, r.receive(q, r.receiveRest) }))
	mux.Handle("GET "+heldPath, control.Answer(func(q *http.Request) (any, error) {
		space := q.FormValue(spaceParam)
		if err := isolation.CheckSpaceName(space); err != nil { // a name is a path here
			return nil, apierrors.NewBadRequest(err.Error())
		}
		newer, err := strconv.ParseInt(q.FormValue(newerParam), 10, 64)
		if err != nil {
			return nil, apierrors.NewBadRequest("the number of moves must be a number")
		}
		return r.Has(space, q.FormValue(storeParam), newer), nil
	}))
}

// Complete returns the directory of a space that was received completely; "" if there is none.
func (r *Receiver) Complete(space string) string {
	dir := filepath.Join(r.Dir, space)
	if _, err := os.Stat(filepath.Join(dir, completeFile)); err != nil {
		return ""
	}
	return dir
}

// Take makes a directory that was received completely that of the space, to, which must not exist. Before, the files of the space's process, if
// any were sent, become those in the directory process. If Take fails half way, it may be called again.
func (r *Receiver) Take(space, to, process string) error {
	dir := filepath.Join(r.Dir, space)
	err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), takeProcess(filepath.Join(dir, spacefiles.ProcessDir), process))
	if err == nil {
		err = os.Rename(dir, to)
	}
	if err == nil {
		err = errors.Join(os.Remove(filepath.Join(to, completeFile)), fsutil.SyncDir(filepath.Dir(to)), fsutil.SyncDir(r.Dir))
	}
	if err != nil {
		return fmt.Errorf("take over the store of space %s: %w", space, err)
	}
	return nil
}

// takeProcess replaces a directory by one that was received, if that is there.
func takeProcess(received, to string) error {
	if _, err := os.Stat(received); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := errors.Join(os.MkdirAll(filepath.Dir(to), 0o700), os.RemoveAll(to)); err != nil {
		return err
	}
	if err := os.Rename(received, to); err != nil {
		return err
	}
	return fsutil.SyncDir(filepath.Dir(to))
}

// Drop removes what was received of a space.
func (r *Receiver) Drop(space string) error {
	r.mu.Lock()
	if before, there := r.base[space]; there {
		before.end()
		delete(r.base, space)
	}
	r.mu.Unlock()
	if err := os.RemoveAll(filepath.Join(r.Dir, space)); err != nil {
		return fmt.Errorf("remove what was received of space %s: %w", space, err)
	}
	return nil
}

func (r *Receiver) receive(q *http.Request, do func(space string, size int64, q *http.Request) error) error {
	space := q.FormValue(spaceParam)
	if err := isolation.CheckSpaceName(space); err != nil { // a name is a path here
		return apierrors.NewBadRequest(err.Error())
	}
	size, err := strconv.ParseInt(q.FormValue(sizeParam), 10, 64)
	if err != nil || size < 0 {
		return apierrors.NewBadRequest("the size of the store must be a number of bytes")
	}
	done, err := r.Begin(q.Context(), space)
	if err != nil {
		return err
	}
	defer done()
	return do(space, size, q)
}

// receiveBase writes the first part of a copy.
func (r *Receiver) receiveBase(space string, size int64, q *http.Request) (err error) {
	if err := r.Drop(space); err != nil {
		return err
	}
	end, err := r.Admit(space, size+maxFiles)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			end()
		}
	}()
	dir := filepath.Join(r.Dir, space)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(filepath.Join(dir, storeFile), os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	var got sums
	if err := eachBlock(io.LimitReader(q.Body, size), func(_ int, data []byte) error {
		got = append(got, sha256.Sum256(data))
		_, err := file.Write(data)
		return err
	}); err != nil {
		return fmt.Errorf("receive the store of space %s: %w", space, err)
	}
	if err := file.Sync(); err != nil { // while the space still runs, so that the second part has little to sync
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.base == nil {
		r.base = map[string]base{}
	}
	r.base[space] = base{got, end}
	return nil
}

// receiveRest writes the second part of a copy, and checks the whole.
func (r *Receiver) receiveRest(space string, size int64, q *http.Request) error {
	r.mu.Lock()
	have, began := r.base[space]
	delete(r.base, space)
	r.mu.Unlock()
	if !began {
		return apierrors.NewConflict(v1alpha1.Resource("spaces"), space, errors.New("the first part of the store isn't here"))
	}
	defer have.end()
	dir := filepath.Join(r.Dir, space)
	if err := r.writeRest(dir, have.sums, size, q); err != nil {
		return errors.Join(fmt.Errorf("receive the store of space %s: %w", space, err), r.Drop(space))
	}
	if r.Arrived != nil && size > 0 {
		r.Arrived(filepath.Join(dir, storeFile))
	}
	return nil
}

func (r *Receiver) writeRest(dir string, have sums, size int64, q *http.Request) (err error) {
	file, err := os.OpenFile(filepath.Join(dir, storeFile), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	blocks := int((size + blockSize - 1) / blockSize)
	have = append(have, make(sums, max(0, blocks-len(have)))...)[:blocks]
	if err := file.Truncate(size); err != nil {
		return err
	}
	left := int64(maxFiles)
	dirs := map[string]bool{dir: true}
	archive := tar.NewReader(q.Body)
	for {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if number, is := strings.CutPrefix(header.Name, blockPrefix); is {
			index, err := strconv.Atoi(number)
			if err != nil || index < 0 || index >= blocks || header.Size > blockSize {
				return fmt.Errorf("block %q of %d bytes is not one of a store of %d", number, header.Size, size)
			}
			data := make([]byte, header.Size)
			if _, err := io.ReadFull(archive, data); err != nil {
				return err
			}
			have[index] = sha256.Sum256(data)
			if _, err := file.WriteAt(data, int64(index)*blockSize); err != nil {
				return err
			}
			continue
		}
		if left -= header.Size; left < 0 {
			return fmt.Errorf("the files of the space have more than %d bytes", maxFiles)
		}
		if !filepath.IsLocal(header.Name) || !isSent(header.Name) && header.Name != datadir.MovesFile && path.Dir(header.Name) != spacefiles.ProcessDir {
			return fmt.Errorf("the file %q does not belong into the directory of a space", header.Name)
		}
		to := filepath.Join(dir, header.Name)
		dirs[filepath.Dir(to)] = true
		if err := writeFile(to, io.LimitReader(archive, header.Size)); err != nil {
			return err
		}
	}
	if got, want := have.digest(), q.FormValue(digestParam); got != want {
		return errors.New("what arrived is not what was sent")
	}
	if size == 0 {
		err = os.Remove(file.Name())
	} else {
		err = file.Sync()
	}
	if err == nil {
		err = writeFile(filepath.Join(dir, completeFile), strings.NewReader(""))
	}
	for dir := range dirs {
		err = errors.Join(err, fsutil.SyncDir(dir))
	}
	return errors.Join(err, fsutil.SyncDir(filepath.Dir(dir)))
}

// writeFile creates a file of mode 0600, in a directory that is created, and syncs it.
func writeFile(path string, from io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	file, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, from)
	return errors.Join(err, file.Sync(), file.Close())
}

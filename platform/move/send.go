// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package move

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/internal/spacefiles"
	"github.com/berth-dev/berth/platform/datadir"
)

// These are the paths of a receiving shard's commands, and their parameters.
const (
	basePath, restPath, heldPath = "/move/base", "/move/rest", "/move/held"
	spaceParam, digestParam      = "space", "digest"
	sizeParam, storeParam        = "size", "store"
	newerParam                   = "newer"
)

// storeFile is the file of a store in the directory of its space.
const storeFile = "store.db"

// blockPrefix is that of the names of the store's blocks in the second part of a copy.
const blockPrefix = "block/"

// Sending is a copy of a space that is being sent to another shard.
type Sending struct {
	// Process, if set before Rest, has paths of files of the space's process, which [Receiver.Take] moves into a directory of their own.
	// Those that don't exist are not sent.
	Process []string

	space, dir string
	moves      int64
	to         *control.Client
	sent       []sentBlock
	seed       maphash.Seed
}

// sentBlock is a block of the store that was sent.
type sentBlock struct {
	sum   sum
	quick uint64 // a faster checksum, by which changes are found while requests wait
}

// NewSending returns a copy of the space whose directory is dir, to the shard to which the client connects. moves is how often the space
// will have moved then, see [datadir.Moves].
func NewSending(space, dir string, moves int64, to *control.Client) *Sending {
	return &Sending{space: space, dir: dir, moves: moves, to: to, seed: maphash.MakeSeed()}
}

func query(path, space string, params ...string) string {
	values := url.Values{spaceParam: {space}}
	for i := 0; i+1 < len(params); i += 2 {
		values.Set(params[i], params[i+1])
	}
	return path + "?" + values.Encode()
}

// Base sends the store as it is in the file now. The space may run, and change it meanwhile. A space without a store sends an empty one.
func (s *Sending) Base(ctx context.Context) error {
	file, size, err := openStore(s.dir)
	if err != nil {
		return s.failed(err)
	}
	if file != nil {
		defer file.Close()
	}
	s.sent = nil
	body, write := io.Pipe()
	go func() {
		if file == nil {
			_ = write.Close()
			return
		}
		_ = write.CloseWithError(eachBlock(io.LimitReader(file, size), func(_ int, data []byte) error {
			s.sent = append(s.sent, sentBlock{sha256.Sum256(data), maphash.Bytes(s.seed, data)})
			_, err := write.Write(data)
			return err
		}))
	}()
	err = s.put(ctx, query(basePath, s.space, sizeParam, strconv.FormatInt(size, 10)), body)
	_ = body.CloseWithError(errors.New("the other shard has answered")) // ends the goroutine before s.sent is used
	return s.failed(err)
}

// Rest sends what has changed since Base, and all other files. The space must have stopped, and its store must be closed. When Rest
// returns, the other shard has all of it on disk.
func (s *Sending) Rest(ctx context.Context) error {
	changed, now, size, err := s.changed()
	if err != nil {
		return s.failed(err)
	}
	body, write := io.Pipe()
	go func() { _ = write.CloseWithError(s.writeRest(write, changed)) }()
	err = s.put(ctx, query(restPath, s.space, sizeParam, strconv.FormatInt(size, 10), digestParam, now.digest()), body)
	_ = body.CloseWithError(errors.New("the other shard has answered"))
	return s.failed(err)
}

// changed returns which blocks of the store differ from those that were sent, the sums of all, and the size. A tenant can't have a changed
// block missed: the quick checksums have a seed that nobody knows.
func (s *Sending) changed() (changed []int, now sums, size int64, err error) {
	file, size, err := openStore(s.dir)
	if err != nil || file == nil {
		return nil, nil, 0, err
	}
	defer file.Close()
	err = eachBlock(file, func(index int, data []byte) error {
		if index < len(s.sent) && s.sent[index].quick == maphash.Bytes(s.seed, data) {
			now = append(now, s.sent[index].sum)
			return nil
		}
		now, changed = append(now, sha256.Sum256(data)), append(changed, index)
		return nil
	})
	return changed, now, size, err
}

func (s *Sending) writeRest(w io.Writer, changed []int) error {
	archive := tar.NewWriter(w)
	file, _, err := openStore(s.dir)
	if err != nil {
		return err
	}
	if file != nil {
		defer file.Close()
	}
	buffer := make([]byte, blockSize)
	for _, index := range changed {
		n, err := file.ReadAt(buffer, int64(index)*blockSize)
		if err != nil && !errors.Is(err, io.EOF) {
			return err
		}
		if err := writeEntry(archive, blockPrefix+strconv.Itoa(index), buffer[:n]); err != nil {
			return err
		}
	}
	err = filepath.WalkDir(s.dir, func(path string, entry fs.DirEntry, err error) error {
		name := strings.TrimPrefix(path, s.dir+string(filepath.Separator))
		if err != nil || !entry.Type().IsRegular() || !isSent(name) {
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return writeEntry(archive, name, data)
	})
	if err != nil {
		return err
	}
	for _, path := range s.Process {
		data, err := os.ReadFile(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err == nil {
			err = writeEntry(archive, spacefiles.ProcessDir+"/"+filepath.Base(path), data)
		}
		if err != nil {
			return err
		}
	}
	if err := writeEntry(archive, datadir.MovesFile, strconv.AppendInt(nil, s.moves, 10)); err != nil {
		return err
	}
	return archive.Close()
}

// isSent reports whether a file of a space's directory belongs to the space. Files of the store are sent in blocks, and locks are of a process.
func isSent(name string) bool {
	return spacefiles.Belongs(name) && name != completeFile && name != datadir.MovesFile
}

func writeEntry(archive *tar.Writer, name string, data []byte) error {
	if err := archive.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: int64(len(data)), Mode: 0o600}); err != nil {
		return err
	}
	_, err := archive.Write(data)
	return err
}

// openStore opens the file of a store; nil if there is none.
func openStore(dir string) (file *os.File, size int64, err error) {
	file, err = os.Open(filepath.Join(dir, storeFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, 0, errors.Join(err, file.Close())
	}
	return file, info.Size(), nil
}

func (s *Sending) put(ctx context.Context, path string, body io.Reader) error {
	request, err := control.NewRequest(ctx, http.MethodPut, path, body)
	if err != nil {
		return err
	}
	// Whether the copy is wanted is known before it is sent. Otherwise, the answer could be lost with the connection, which a server
	// closes that doesn't read the body.
	request.Header.Set("Expect", "100-continue")
	response, err := s.to.Send(request)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

func (s *Sending) failed(err error) error {
	if err != nil {
		return fmt.Errorf("send the store of space %s to another shard: %w", s.space, err)
	}
	return nil
}

// Has asks another shard whether it has the store of a space with this ID, which has moved more often than newer.
func Has(ctx context.Context, to *control.Client, space, store string, newer int64) (has bool, err error) {
	err = to.Do(ctx, http.MethodGet, query(heldPath, space, storeParam, store, newerParam, strconv.FormatInt(newer, 10)), &has)
	return has, err
}

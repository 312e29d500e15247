// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package move_test

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/platform/move"
)

// other is the shard that receives.
type other struct {
	*move.Receiver
	client *control.Client
	// received is how many bytes arrived in all.
	received int64
	refuse   error
}

func newOther(t *testing.T) *other {
	t.Helper()
	o := &other{Receiver: &move.Receiver{Dir: t.TempDir(), Has: func(space, store string, newer int64) bool { return space == "solar" && store == "id" && newer < 7 }}}
	o.Begin = func(context.Context, string) (func(), error) { return func() {}, o.refuse }
	o.Admit = func(_ string, size int64) (func(), error) {
		if size > 128<<20 {
			return nil, errors.New("the disk is full")
		}
		return func() {}, nil
	}
	mux := http.NewServeMux()
	o.Serve(mux)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.Body = &counting{r.Body, &o.received}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	o.client = control.NewClientTo("in a test", 1<<20, func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", server.Listener.Addr().String())
	})
	return o
}

type counting struct {
	body interface {
		Read(p []byte) (int, error)
		Close() error
	}
	n *int64
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.body.Read(p)
	*c.n += int64(n)
	return n, err
}

func (c *counting) Close() error { return c.body.Close() }

// files returns the files in a directory, by path.
func files(t *testing.T, dir string) map[string]string {
	t.Helper()
	all := map[string]string{}
	if err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		name, _ := filepath.Rel(dir, path)
		all[name] = string(data)
		return err
	}); err != nil {
		t.Fatal(err)
	}
	return all
}

func write(t *testing.T, dir, name string, data []byte) {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, data, 0o600)); err != nil {
		t.Fatal(err)
	}
}

// D5: what arrives is what the space's directory has when it has stopped, however the store changed since the first part was sent, and
// the second part has little more than what changed.
func TestASpaceArrivesAsItWasWhenItStopped(t *testing.T) {
	const block = 64 << 10
	random := rand.NewChaCha8([32]byte{})
	store := make([]byte, 40*block+100)
	_, _ = random.Read(store)
	for name, change := range map[string]func(store []byte) []byte{
		"unchanged":          func(store []byte) []byte { return store },
		"a byte":             func(store []byte) []byte { store[7*block+5]++; return store },
		"grown":              func(store []byte) []byte { return append(store, make([]byte, 3*block)...) },
		"grown in the last":  func(store []byte) []byte { return append(store, 1, 2, 3) },
		"shrunk":             func(store []byte) []byte { return store[:20*block+1] },
		"shrunk to a block":  func(store []byte) []byte { return store[:block] },
		"emptied and filled": func([]byte) []byte { return bytes.Repeat([]byte("x"), 2*block) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir, o := t.TempDir(), newOther(t)
			before := bytes.Clone(store)
			write(t, dir, "store.db", before)
			write(t, dir, "store.db-wal", []byte("of a store that is open"))
			write(t, dir, "store.db.lock", nil)
			write(t, dir, "store.id", []byte("id"))
			write(t, dir, "pki/ca.key", []byte("key"))
			write(t, dir, "pki/ca.lock", nil)
			write(t, dir, "moves", []byte("6"))
			write(t, dir, "dedicated/claims.json", []byte("planted"))
			process := t.TempDir()
			write(t, process, "incarnation", []byte("random"))
			write(t, process, "host.token", []byte("of the process here"))
			sending := move.NewSending("solar", dir, 7, o.client)
			sending.Process = []string{filepath.Join(process, "incarnation"), filepath.Join(process, "claims.json")}
			if err := sending.Base(t.Context()); err != nil {
				t.Fatal(err)
			}
			if o.Complete("solar") != "" {
				t.Fatal("half of a copy counts as complete")
			}
			base := o.received
			after := change(bytes.Clone(before))
			write(t, dir, "store.db", after)
			write(t, dir, "store.id", []byte("another id"))
			if err := os.Remove(filepath.Join(dir, "store.db-wal")); err != nil {
				t.Fatal(err)
			}
			if err := sending.Rest(t.Context()); err != nil {
				t.Fatal(err)
			}
			got, want := o.Complete("solar"), filepath.Join(t.TempDir(), "spaces", "solar")
			if got == "" {
				t.Fatal("the copy isn't complete")
			}
			own := filepath.Join(t.TempDir(), "dedicated", "solar")
			write(t, own, "claims.json", []byte("of an earlier stay"))
			if err := o.Take("solar", want, own); err != nil {
				t.Fatal(err)
			}
			if have := files(t, own); len(have) != 1 || have["incarnation"] != "random" {
				t.Errorf("of its process, %v arrived", have)
			}
			have := files(t, want)
			if have["store.db"] != string(after) || have["store.id"] != "another id" || have["pki/ca.key"] != "key" || have["moves"] != "7" || len(have) != 4 {
				t.Errorf("what arrived has %d bytes of %d, and the files differ: %v", len(have["store.db"]), len(after), len(have))
			}
			if rest := o.received - base; name == "a byte" && rest > 3*block {
				t.Errorf("the second part has %d bytes for one that has changed", rest)
			}
		})
	}
}

// A space that was never started has no store yet.
func TestASpaceWithoutAStoreMoves(t *testing.T) {
	dir, o := t.TempDir(), newOther(t)
	write(t, dir, "store.id", []byte("id"))
	sending := move.NewSending("solar", dir, 7, o.client)
	if err := errors.Join(sending.Base(t.Context()), sending.Rest(t.Context())); err != nil {
		t.Fatal(err)
	}
	if have := files(t, o.Complete("solar")); have["store.id"] != "id" || len(have) != 3 {
		t.Errorf("the other shard has %v", have)
	}
}

// D5: a crash between the two renames of Take loses nothing that arrived: neither what is in its place already, nor the rest.
func TestTakeGoesOnAfterACrash(t *testing.T) {
	dir, process, o := t.TempDir(), t.TempDir(), newOther(t)
	write(t, dir, "store.id", []byte("id"))
	write(t, process, "incarnation", []byte("random"))
	sending := move.NewSending("solar", dir, 7, o.client)
	sending.Process = []string{filepath.Join(process, "incarnation")}
	if err := errors.Join(sending.Base(t.Context()), sending.Rest(t.Context())); err != nil {
		t.Fatal(err)
	}
	to, own := filepath.Join(t.TempDir(), "spaces", "solar"), filepath.Join(t.TempDir(), "dedicated", "solar")
	write(t, to, "store.id", []byte("in the way"))
	if err := o.Take("solar", to, own); err == nil {
		t.Fatal("the directory of another space was replaced")
	}
	if err := os.RemoveAll(to); err != nil {
		t.Fatal(err)
	}
	if err := o.Take("solar", to, own); err != nil {
		t.Fatal(err)
	}
	if have, of := files(t, to), files(t, own); have["store.id"] != "id" || of["incarnation"] != "random" {
		t.Errorf("the space has %v, and its process %v", have, of)
	}
}

// A copy that isn't wanted, doesn't fit on the disk, or was begun by nobody leaves nothing that counts.
func TestACopyThatIsRefusedLeavesNothing(t *testing.T) {
	dir, o := t.TempDir(), newOther(t)
	write(t, dir, "store.db", []byte("store"))
	sending := move.NewSending("solar", dir, 7, o.client)
	if err := sending.Rest(t.Context()); err == nil {
		t.Error("the second part was accepted without the first one")
	}
	o.refuse = errors.New("the space does not move here")
	if err := sending.Base(t.Context()); err == nil || !strings.Contains(err.Error(), "does not move here") {
		t.Errorf("a copy that nobody wants: %v", err)
	}
	o.refuse = nil
	if err := os.Truncate(filepath.Join(dir, "store.db"), 65<<20); err != nil {
		t.Fatal(err)
	}
	if err := sending.Base(t.Context()); err == nil || !strings.Contains(err.Error(), "the disk is full") {
		t.Errorf("a copy that doesn't fit on the disk: %v", err)
	}
	if names, err := os.ReadDir(o.Dir); err != nil || len(names) != 0 {
		t.Errorf("there is %v of it: %v", names, err)
	}
	if has, err := move.Has(t.Context(), o.client, "solar", "id", 6); err != nil || !has {
		t.Errorf("the other shard has the space: %v, %v", has, err)
	}
}

// The files that another shard sends stay in the directory of the space, and are what was sent.
func TestHostileFilesStayInTheirDirectory(t *testing.T) {
	nothing := fmt.Sprintf("%x", sha256.Sum256(nil)) // the digest of a store without blocks
	for name, put := range map[string]struct {
		space, file, digest string
		complete            bool
	}{
		"an honest file":      {"solar", "store.id", nothing, true},
		"a path upwards":      {"solar", "../other/store.id", nothing, false},
		"an absolute path":    {"solar", "/etc/passwd", nothing, false},
		"the store":           {"solar", "store.db", nothing, false},
		"the mark of the end": {"solar", "move.complete", nothing, false},
		"another digest":      {"solar", "store.id", "0000", false},
		"a space of a path":   {"../solar", "store.id", nothing, false},
	} {
		o := newOther(t)
		o.Dir = filepath.Join(o.Dir, "received")
		var archive bytes.Buffer
		w := tar.NewWriter(&archive)
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: put.file, Size: 1, Mode: 0o600}); err != nil {
			t.Fatal(err)
		}
		_, _ = w.Write([]byte("x"))
		_ = w.Close()
		query := "?space=" + put.space + "&size=0&digest=" + put.digest
		for _, path := range []string{"/move/base", "/move/rest"} {
			request, err := control.NewRequest(t.Context(), http.MethodPut, path+query, bytes.NewReader(archive.Bytes()))
			if err != nil {
				t.Fatal(err)
			}
			if response, err := o.client.Send(request); err == nil {
				_ = response.Body.Close()
			}
		}
		if complete := o.Complete("solar") != ""; complete != put.complete {
			t.Errorf("%s: the copy counts as complete: %v", name, complete)
		}
		have := files(t, filepath.Dir(o.Dir)) // beside the directory, too
		if put.complete {
			delete(have, "received/solar/store.id")
			delete(have, "received/solar/move.complete")
		}
		if len(have) > 0 {
			t.Errorf("%s: there are %v", name, have)
		}
	}
}

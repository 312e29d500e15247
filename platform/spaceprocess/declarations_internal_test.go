// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package spaceprocess

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/testcrd"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/shard/dedicated"
	"github.com/berth-dev/berth/syncer/declaration"
)

// declared returns a declaration that syncs a field to the host.
func declared(t *testing.T, kind, field, uid string) *declaration.Declaration {
	t.Helper()
	crd := testcrd.New("example.com", kind, &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: new(true)})
	d, errs := declaration.Compile(&v1alpha1.ResourceSync{
		ObjectMeta: metav1.ObjectMeta{Name: crd.Name, UID: types.UID(uid)},
		Spec:       v1alpha1.ResourceSyncSpec{Direction: v1alpha1.SyncToHost, Version: "v1", Fields: []v1alpha1.SyncedField{{Path: "spec." + field}}},
	}, crd)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	return d
}

func encoded(t *testing.T, keep []string, all ...*declaration.Declaration) []byte {
	t.Helper()
	data, err := (&declaration.Update{Declarations: all, Keep: keep}).Encode()
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// watcher is a host that knows the objects of all declarations but some.
type watcher struct {
	unknown map[string]bool
	watches []*declaration.Declaration
}

func (w *watcher) Declare(all []*declaration.Declaration) error {
	w.watches = all
	return nil
}

var errUnknown = errors.New("not known yet")

func (w *watcher) DeclaredReady(name string) error {
	if w.unknown[name] {
		return errUnknown
	}
	return nil
}

// C6: the space has what the platform sent once the host's objects are known, and restarts only for what is another thing.
func TestASpaceTakesUpWhatIsSyncedOfIt(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := openDeclarations(dir, klog.Background())
	host := &watcher{unknown: map[string]bool{}}
	notes, pens := declared(t, "Note", "text", "1"), declared(t, "Pen", "color", "1")
	took := func(what string, pending error, want ...string) string {
		t.Helper()
		if err := s.declare(host); !errors.Is(err, pending) {
			t.Errorf("%s: %v, want %v", what, err, pending)
		}
		var names []string
		for _, d := range s.of() {
			names = append(names, d.Name)
		}
		if !slices.Equal(names, want) {
			t.Errorf("%s: the space has %q, want %q", what, names, want)
		}
		return declaration.WatchedVersions(s.of())
	}
	send := func(all ...*declaration.Declaration) {
		t.Helper()
		if err := s.set(encoded(t, nil, all...)); err != nil {
			t.Fatal(err)
		}
	}
	took("at first", nil)
	send(notes, pens)
	host.unknown[pens.Name] = true
	took("one isn't known", errUnknown, notes.Name)
	clear(host.unknown)
	before := took("both are known", nil, notes.Name, pens.Name)
	send(notes, pens)
	if now := took("the same again", nil, notes.Name, pens.Name); now != before {
		t.Errorf("the same is another version: %s, was %s", now, before)
	}
	host.unknown[pens.Name] = true
	send(notes, declared(t, "Pen", "width", "1"))
	if now := took("another field, not known yet", errUnknown, notes.Name, pens.Name); now != before {
		t.Errorf("what isn't known is in force: %s, was %s", now, before)
	}
	clear(host.unknown)
	changed := took("another field", nil, notes.Name, pens.Name)
	if changed == before {
		t.Errorf("the version stays %s", changed)
	}
	send(notes, declared(t, "Pen", "width", "2"))
	if now := took("another ResourceSync that says the same", nil, notes.Name, pens.Name); now == changed {
		t.Errorf("the version stays %s", now)
	}
	changed = took("once more", nil, notes.Name, pens.Name)
	if err := s.set(encoded(t, []string{notes.Name, pens.Name})); err != nil {
		t.Fatal(err)
	}
	if now := took("a platform that doesn't know yet", nil, notes.Name, pens.Name); now != changed {
		t.Errorf("what isn't known doesn't stay: %s, was %s", now, changed)
	}
	if err := s.set(encoded(t, []string{pens.Name, "unheard.example.com"}, notes)); err != nil {
		t.Fatal(err)
	}
	if now := took("a platform that knows one", nil, notes.Name, pens.Name); now != changed {
		t.Errorf("what is the same doesn't stay: %s, was %s", now, changed)
	}
	send(notes)
	took("one ends", nil, notes.Name)
	if len(host.watches) != 1 {
		t.Errorf("the host watches %d", len(host.watches))
	}
	if err := s.set([]byte(`{"declarations":[{}]}`)); err == nil {
		t.Error("what can't be compiled is taken")
	}
	took("after that", nil, notes.Name)
	digest, file := s.digest, s.file
	s.file = filepath.Join(dir, "absent", DeclarationsFile)
	if err := s.set(encoded(t, nil, pens)); err == nil || s.digest != digest {
		t.Errorf("what can't be written is taken: %v", err)
	}
	took("a disk that doesn't write", nil, notes.Name)
	s.file = file

	// A process that starts again has what was sent last, and what was damaged it waits for.
	s = openDeclarations(dir, klog.Background())
	took("the next process", nil, notes.Name)
	if err := os.WriteFile(filepath.Join(dir, DeclarationsFile), []byte("damaged"), 0o600); err != nil {
		t.Fatal(err)
	}
	s = openDeclarations(dir, klog.Background())
	took("a damaged file", nil)
	send(pens)
	took("it is sent again", nil, pens.Name)

	// A process that doesn't run finds what is in force, and what it had of what isn't known.
	if err := WriteDeclarations(dir, &declaration.Update{Declarations: []*declaration.Declaration{notes}, Keep: []string{pens.Name}}); err != nil {
		t.Fatal(err)
	}
	s = openDeclarations(dir, klog.Background())
	took("a process that is started", nil, notes.Name, pens.Name)
}

// C6: the space is restarted until it has what is in force, and what comes meanwhile isn't missed.
func TestASpaceRestartsUntilItHasWhatIsSynced(t *testing.T) {
	t.Parallel()
	s := openDeclarations(t.TempDir(), klog.Background())
	notes := declared(t, "Note", "text", "1")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var runs []string
	var current []bool // whether a space that syncs nothing is as it is to be
	s.follow(ctx, &watcher{}, func(_ context.Context, is func(*shard.Space) bool) error {
		runs, current = append(runs, declaration.WatchedVersions(s.of())), append(current, is(&shard.Space{}))
		switch len(runs) {
		case 1:
			return s.set(encoded(t, nil, notes))
		case 2:
			return errUnknown // tried again
		}
		cancel()
		return shard.ErrUnknown // it is being moved, and then starts with what is in force
	})
	if len(runs) != 3 || runs[0] != "" || runs[1] == "" || runs[2] != runs[1] || !slices.Equal(current, []bool{true, false, false}) {
		t.Errorf("the space is restarted for %q, and is as it is to be: %v", runs, current)
	}
}

// C6: a question waits for its answer, and for no longer than the platform may take.
func TestTheProcessAsksForWithdrawals(t *testing.T) {
	t.Parallel()
	w, mux := &withdrawals{}, http.NewServeMux()
	w.serve(mux)
	call := func(method, body string) string {
		t.Helper()
		recorded := httptest.NewRecorder()
		mux.ServeHTTP(recorded, httptest.NewRequestWithContext(t.Context(), method, dedicated.WithdrawalsPath, bytes.NewBufferString(body)))
		if recorded.Code >= http.StatusBadRequest {
			t.Errorf("%s: %d: %s", method, recorded.Code, recorded.Body)
		}
		return strings.TrimSpace(recorded.Body.String())
	}
	earlier := &withdrawals{}
	stopped, stop := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- earlier.withdraw(stopped, "solar", nil) }()
	stale := earlier.questions.next(t.Context()).ID
	stop()
	if err := <-ended; !errors.Is(err, context.Canceled) || len(earlier.questions.open) > 0 {
		t.Errorf("of a space that stops: %v, and %d are open", err, len(earlier.questions.open))
	}
	for _, want := range []string{"", "the host doesn't answer"} {
		result := make(chan error, 1)
		go func() { result <- w.withdraw(t.Context(), "solar", []string{"notes.example.com"}) }()
		var asked dedicated.Withdrawal
		if err := json.Unmarshal([]byte(call(http.MethodGet, "")), &asked); err != nil || asked.ID == 0 || !slices.Equal(asked.Runs, []string{"notes.example.com"}) {
			t.Errorf("the process asks %+v, %v", asked, err)
		}
		call(http.MethodPut, fmt.Sprintf(`{"id":%d,"failed":"it was for another process"}`, stale))
		call(http.MethodPut, fmt.Sprintf(`{"id":%d,"failed":%q}`, asked.ID, want))
		if err := <-result; want == "" && err != nil || want != "" && (err == nil || err.Error() != want) {
			t.Errorf("the answer %q is %v", want, err)
		}
	}
	w.questions.polled = time.Now().Add(-awayAfter - time.Second)
	if err := w.withdraw(t.Context(), "solar", nil); !errors.Is(err, errNoAnswer) {
		t.Errorf("while the platform is away: %v", err)
	}
	call(http.MethodPut, `{"id":3}`) // nobody asked that
}

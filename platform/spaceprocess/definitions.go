// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package spaceprocess

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/internal/fsutil"
	"github.com/berth-dev/berth/shard/dedicated"
)

// DefinitionsFile has the shared definitions of the space of a process, as [definitions.Encode] encodes them: those at its first start, and
// then those that the platform sent last. So a process that starts doesn't lack them until the platform sends them.
const DefinitionsFile = "definitions.json"

// maxDefinitions limits the shared definitions in a request, in bytes.
const maxDefinitions = 64 << 20

// sharedDefinitions are those that the platform shares with the space of the process. It is safe for concurrent use.
type sharedDefinitions struct {
	file   string
	source definitions.Source

	mu sync.Mutex // held while they are replaced
}

// openDefinitions reads what the platform sent last. If that can't be read, the space has none until the platform sends them.
func openDefinitions(dir string) (*sharedDefinitions, error) {
	s := &sharedDefinitions{file: filepath.Join(dir, DefinitionsFile)}
	data, err := os.ReadFile(s.file)
	if errors.Is(err, fs.ErrNotExist) {
		return s, nil
	}
	if err != nil {
		return s, fmt.Errorf("read shared definitions: %w", err)
	}
	set, err := definitions.Decode(data)
	if err == nil {
		s.source.Set(set)
	}
	return s, err
}

func (s *sharedDefinitions) set(data []byte) error {
	set, err := definitions.Decode(data)
	if err != nil {
		return apierrors.NewBadRequest(err.Error())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := fsutil.Replace(s.file, func(w io.Writer) error {
		_, err := w.Write(data)
		return err
	}); err != nil {
		return fmt.Errorf("write shared definitions: %w", err)
	}
	s.source.Set(set)
	return nil
}

// sentBody reads what the platform sends. tooLarge is what to say about more than limit bytes, with the verb %d for the limit in MiB.
func sentBody(r *http.Request, limit int64, tooLarge string) ([]byte, error) {
	data, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, limit))
	if _, large := errors.AsType[*http.MaxBytesError](err); large {
		return nil, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf(tooLarge, limit>>20))
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return data, nil
}

// serve adds the routes for the shared definitions.
func (s *sharedDefinitions) serve(mux *http.ServeMux) {
	mux.Handle("PUT "+dedicated.DefinitionsPath, control.Answer(func(r *http.Request) (any, error) {
		data, err := sentBody(r, maxDefinitions, "the shared definitions of the space have more than %d MiB; share fewer with its tenant")
		if err != nil {
			return nil, err
		}
		return nil, s.set(data)
	}))
	mux.Handle("GET "+dedicated.DefinitionsPath, control.Answer(func(*http.Request) (any, error) {
		set, _ := s.source.Watch()
		return dedicated.Defined{Version: set.FullVersion()}, nil
	}))
}

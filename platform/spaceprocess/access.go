// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package spaceprocess

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/platform/process"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/shard/dedicated"
)

// AccessFile is a file that the platform writes for the process, with what the space enforces of its tenant. The process reads it
// when it starts. After that, the platform sends changes, and the process writes nothing.
const AccessFile = "access.json"

// EncodeAccess returns the contents of an [AccessFile]. Published objects are not in it, because they may be larger than a Secret
// can be. The platform sends them when the process runs; until then, copies in the space stay as they are. Rights that the platform
// grants are not in it either: a process that starts by itself must not know those that were revoked meanwhile.
func EncodeAccess(state *access.State) ([]byte, error) {
	if len(state.Published) > 0 || len(state.Granted) > 0 {
		state = &access.State{
			Space: state.Space, Tenant: state.Tenant, Access: state.Access, Namespaces: state.Namespaces, PublishedUnknown: state.PublishedUnknown || len(state.Published) > 0,
		}
	}
	data, err := json.Marshal(state)
	if err != nil {
		return nil, fmt.Errorf("encode what space %s enforces: %w", state.Space, err)
	}
	return data, nil
}

// maxAccess limits what a space enforces in a request, in bytes.
const maxAccess = 64 << 20

// enforcement is what the space of the process enforces of its tenant. It is safe for concurrent use.
type enforcement struct {
	space  string
	source *access.Source

	mu     sync.Mutex
	digest string
}

// newEnforcement reads what the platform wrote. A space never runs without it: it would let in who is locked out.
func newEnforcement(d *process.Dedicated, dir string) (*enforcement, error) {
	e := &enforcement{space: d.Space, source: d.Specs.Access(d.Space)}
	data, err := os.ReadFile(filepath.Join(dir, AccessFile))
	if err == nil {
		err = e.set(data)
	}
	if err != nil {
		return nil, fmt.Errorf("read what the space enforces: %w", err)
	}
	return e, nil
}

func (e *enforcement) set(data []byte) error {
	state := &access.State{}
	if err := json.Unmarshal(data, state); err != nil {
		return err
	}
	if state.Space != e.space {
		return fmt.Errorf("it is of the space %q, want %q", state.Space, e.space)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.source.Set(state)
	e.digest = dedicated.AccessDigest(data)
	return nil
}

// serve adds the routes for what the space enforces.
func (e *enforcement) serve(mux *http.ServeMux, namespaces func() *shard.Namespaces) {
	mux.Handle("PUT "+dedicated.AccessPath, control.Answer(func(r *http.Request) (any, error) {
		data, err := io.ReadAll(io.LimitReader(r.Body, maxAccess))
		if err == nil {
			err = e.set(data)
		}
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return nil, nil
	}))
	mux.Handle("GET "+dedicated.AccessPath, control.Answer(func(*http.Request) (any, error) {
		e.mu.Lock()
		defer e.mu.Unlock()
		return dedicated.Enforced{Digest: e.digest, Namespaces: namespaces()}, nil
	}))
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dedicated

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/shard"
)

// AccessPath is the path of the commands about what a space enforces of its tenant: PUT replaces it by an [access.State], GET returns
// an [Enforced].
const AccessPath = "/access"

// Enforced says what a process enforces of its space's tenant.
type Enforced struct {
	// Digest is [AccessDigest] of the state that the process has.
	Digest string `json:"digest"`
	// Namespaces are those of the space; nil if it is not awake.
	Namespaces *shard.Namespaces `json:"namespaces,omitempty"`
}

// AccessDigest returns the digest of an encoded state.
func AccessDigest(data []byte) string {
	sum := sha256.Sum256(data)
	return hex.EncodeToString(sum[:])
}

// encodedAccess is the last state that was sent to a process, or compared with that of the process. States with published objects
// are large, and are compared every few seconds.
type encodedAccess struct {
	mu     sync.Mutex
	of     *access.State
	data   []byte
	digest string
}

// encode returns the encoding of a state, which is immutable, and its digest.
func (e *encodedAccess) encode(state *access.State) (data []byte, digest string, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.of != state {
		data, err := json.Marshal(state)
		if err != nil {
			return nil, "", fmt.Errorf("encode what a space enforces: %w", err)
		}
		e.of, e.data, e.digest = state, data, AccessDigest(data)
	}
	return e.data, e.digest, nil
}

// Enforce sends the process what its space has to enforce, unless the process has it already, and returns what the process says of
// it. It may be called again at any time: a process that was restarted, or that a message did not reach, gets the state then.
func (p *Process) Enforce(ctx context.Context, state *access.State) (Enforced, error) {
	data, digest, err := p.access.encode(state)
	if err != nil {
		return Enforced{}, err
	}
	has, err := p.enforced(ctx)
	if err != nil || has.Digest == digest {
		return has, err
	}
	sending, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	req, err := control.NewRequest(sending, http.MethodPut, AccessPath, bytes.NewReader(data))
	if err != nil {
		return Enforced{}, err
	}
	if err := p.send(req, "send what space "+p.space+" enforces"); err != nil {
		return Enforced{}, err
	}
	has.Digest = digest
	return has, nil
}

func (p *Process) enforced(ctx context.Context) (Enforced, error) {
	ctx, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	var said Enforced
	if err := p.client.Do(ctx, http.MethodGet, AccessPath, &said); err != nil {
		return Enforced{}, fmt.Errorf("ask what space %s enforces: %w", p.space, err)
	}
	return Enforced{Digest: said.Digest, Namespaces: checkedNamespaces(said.Namespaces)}, nil
}

// maxNamespaces limits how many namespaces a process may say that its space has.
const maxNamespaces = 1_000_000

// checkedNamespaces returns the valid part of what a process says. Somebody may have taken over the process, and the host's API
// server would reject an invalid status.
func checkedNamespaces(said *shard.Namespaces) *shard.Namespaces {
	if said == nil {
		return nil
	}
	names := slices.DeleteFunc(said.Names, func(name string) bool { return len(validation.IsDNS1123Label(name)) > 0 })
	slices.Sort(names)
	names = slices.Compact(names)
	names = names[:min(len(names), shard.MaxNamespaceNames)]
	return &shard.Namespaces{Names: names, Count: min(max(said.Count, int32(len(names))), maxNamespaces)}
}

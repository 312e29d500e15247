// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dedicated

import (
	"bytes"
	"context"
	"fmt"
	"net/http"

	"github.com/berth-dev/berth/control"
	"github.com/berth-dev/berth/definitions"
)

// DefinitionsPath is the path of the commands about the definitions that the platform shares with a space: PUT replaces them by those
// that [definitions.Encode] encodes, GET returns a [Defined].
const DefinitionsPath = "/definitions"

// Defined says which shared definitions a process has.
type Defined struct {
	// Version is the full version of the set.
	Version string `json:"version"`
}

// Define sends the process the definitions that the platform shares with its space, unless the process has them already. It may be
// called again at any time.
func (p *Process) Define(ctx context.Context, set *definitions.Set) error {
	asking, cancel := context.WithTimeout(ctx, statusTimeout)
	defer cancel()
	var has Defined
	if err := p.client.Do(asking, http.MethodGet, DefinitionsPath, &has); err != nil {
		return fmt.Errorf("ask which shared definitions space %s has: %w", p.space, err)
	}
	if has.Version == set.FullVersion() {
		return nil
	}
	data, err := definitions.Encode(set)
	if err != nil {
		return err
	}
	sending, cancelSending := context.WithTimeout(ctx, callTimeout)
	defer cancelSending()
	req, err := control.NewRequest(sending, http.MethodPut, DefinitionsPath, bytes.NewReader(data))
	if err != nil {
		return err
	}
	return p.send(req, "send the shared definitions of space "+p.space)
}

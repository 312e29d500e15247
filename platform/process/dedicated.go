// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"

	"github.com/berth-dev/berth/shard/dedicated"
	"github.com/berth-dev/berth/vcluster/pki"
)

// Dedicated is what the process of a dedicated space is told, in a file.
type Dedicated struct {
	Options
	Space    string
	Endpoint string         // URL of the platform's TLS listener, without a path
	Closed   []netip.Prefix // public ranges of the host, which are closed to spaces' pods
	// Listen is where the process serves the platform, if it runs on another machine and has a volume of its own; it serves
	// sockets in its directory if that is empty.
	Listen dedicated.Addresses
}

// Remote reports whether the process runs elsewhere than the platform.
func (d *Dedicated) Remote() bool { return d.Listen != dedicated.Addresses{} }

// ReadDedicated reads what the process of a dedicated space is told.
func ReadDedicated(file string) (*Dedicated, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the configuration of a dedicated space: %w", err)
	}
	d := &Dedicated{}
	if err := json.Unmarshal(data, d); err != nil {
		return nil, fmt.Errorf("read the configuration of a dedicated space: %s: %w", file, err)
	}
	return d, d.Complete()
}

// Write writes that file.
func (d *Dedicated) Write(file string) error {
	data, err := json.Marshal(d)
	if err != nil {
		return fmt.Errorf("write the configuration of space %s: %w", d.Space, err)
	}
	if err := pki.WriteFile(file, data); err != nil {
		return fmt.Errorf("write the configuration of space %s: %w", d.Space, err)
	}
	return nil
}

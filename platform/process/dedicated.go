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

// Dedicated is the configuration of a dedicated space's process, which reads it from a file.
type Dedicated struct {
	Options
	Space    string
	Endpoint string         // URL of the platform's TLS listener, without a path
	Closed   []netip.Prefix // public ranges of the host, which are closed to spaces' pods
	// Listen is where the process serves the platform if it runs on another machine with a volume of its own. If it is
	// empty, the process serves sockets in its directory.
	Listen dedicated.Addresses
}

// Remote reports whether the process runs on another machine than the platform.
func (d *Dedicated) Remote() bool { return d.Listen != dedicated.Addresses{} }

// ReadDedicated reads the configuration file of a dedicated space's process.
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

// Write writes the configuration file.
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

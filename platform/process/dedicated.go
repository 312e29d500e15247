// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/berth-dev/berth/vcluster/pki"
)

// Dedicated is what the process of a dedicated space is told, in a file.
type Dedicated struct {
	Options
	Space          string
	HostKubeconfig string // that of the cluster which the process is a pod of if empty
	Endpoint       string // URL of the platform's TLS listener, without a path
}

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

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"maps"
	"sync"

	"github.com/berth-dev/berth/shard/dedicated"
)

// processes are those of dedicated spaces, by space. It is safe for concurrent use.
type processes struct {
	mu sync.RWMutex
	of map[string]*dedicated.Process
}

// get returns the process of a space; nil if it has none.
func (p *processes) get(space string) *dedicated.Process {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return p.of[space]
}

func (p *processes) add(space string, process *dedicated.Process) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.of == nil {
		p.of = map[string]*dedicated.Process{}
	}
	p.of[space] = process
}

func (p *processes) remove(space string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.of, space)
}

// all returns a copy.
func (p *processes) all() map[string]*dedicated.Process {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return maps.Clone(p.of)
}

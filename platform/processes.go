// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"context"
	"maps"
	"sync"

	"github.com/berth-dev/berth/shard"
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

// add fails if there are as many as there may be.
func (p *processes) add(space string, process *dedicated.Process, most int) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.of) >= most {
		return false
	}
	if p.of == nil {
		p.of = map[string]*dedicated.Process{}
	}
	p.of[space] = process
	return true
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

// statuses asks all at once, as one that hangs takes its time to be given up.
func (p *processes) statuses() []shard.Status {
	all := p.all()
	list, i := make([]shard.Status, len(all)), 0
	var wg sync.WaitGroup
	for _, process := range all {
		to := &list[i]
		wg.Go(func() { *to = process.Status(context.Background()) })
		i++
	}
	wg.Wait()
	return list
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package safego

import "sync"

// Latest runs work in the background, one for each name at a time, so that work that hangs delays none of another name. What is asked for
// while work of the same name runs is done once, after it. The zero value is ready. It is safe for concurrent use.
type Latest struct {
	mu      sync.Mutex
	running map[string]bool // whether the work of a name is to be done again
	group   sync.WaitGroup
}

// Begin has work done that is the same for each call with a name. It has to read what it is about when it begins.
func (l *Latest) Begin(name, doing string, work func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, runs := l.running[name]; runs {
		l.running[name] = true
		return
	}
	if l.running == nil {
		l.running = map[string]bool{}
	}
	l.running[name] = false
	Go(&l.group, doing, func() {
		for work(); l.again(name); {
			work()
		}
	}, func(error) { l.end(name) })
}

// again reports whether the work of a name is to be done again. Otherwise, it has ended.
func (l *Latest) again(name string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	again := l.running[name]
	if again {
		l.running[name] = false
	} else {
		delete(l.running, name)
	}
	return again
}

func (l *Latest) end(name string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.running, name)
}

// Wait returns when nothing runs any more.
func (l *Latest) Wait() { l.group.Wait() }

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package safego runs functions so that a panic ends what they do, and not the process: many spaces share one, and what a
// tenant writes must not end it, whatever mistake it meets. Packages that handle tenants' bytes start goroutines and timers
// by this package only; a test finds those that don't.
//
// A panic is logged with its stack. Whoever starts a function says what else ends with it.
package safego

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"k8s.io/klog/v2"
)

// Call calls f, and makes an error of a panic.
func Call(doing string, f func() error) (err error) {
	defer func() {
		if what := recover(); what != nil {
			klog.Background().Error(nil, "Panic", "doing", doing, "cause", what, "stack", string(debug.Stack()))
			err = fmt.Errorf("%s: panic: %v", doing, what)
		}
	}()
	return f()
}

// Run calls f, and failed with the error that a panic of it is. failed may be nil.
func Run(doing string, f func(), failed func(error)) {
	err := Call(doing, func() error {
		f()
		return nil
	})
	if err != nil && failed != nil {
		failed(err)
	}
}

// Go runs f as [Run] does, in a goroutine that wait waits for.
func Go(wait *sync.WaitGroup, doing string, f func(), failed func(error)) {
	wait.Go(func() { Run(doing, f, failed) })
}

// AfterFunc is [time.AfterFunc], with f as [Run] runs it.
func AfterFunc(d time.Duration, doing string, f func()) *time.Timer {
	return time.AfterFunc(d, func() { Run(doing, f, nil) })
}

// While returns a context that lasts for as long as check holds. check is called after a pause, and then after the pause that it returns,
// until ctx ends. It has to hold: a panic of it ends the context, too.
func While(ctx context.Context, pause time.Duration, doing string, check func() (pause time.Duration, holds bool)) context.Context {
	ctx, end := context.WithCancel(ctx)
	var mu sync.Mutex
	var timer *time.Timer
	again := func() {
		var holds bool
		Run(doing, func() { pause, holds = check() }, nil)
		if !holds {
			end()
			return
		}
		mu.Lock()
		defer mu.Unlock()
		if ctx.Err() == nil {
			timer.Reset(pause)
		}
	}
	mu.Lock()
	defer mu.Unlock()
	timer = time.AfterFunc(pause, again)
	context.AfterFunc(ctx, func() {
		mu.Lock()
		defer mu.Unlock()
		timer.Stop()
	})
	return ctx
}

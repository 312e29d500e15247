// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/berth-dev/berth/internal/safego"
)

// drainTimeout is how long a stop waits for current requests before it ends them. Watches end at once.
const drainTimeout = 3 * time.Second

// Stop ends the controllers, the API server, and the informers, in this order, and closes the store. It returns when
// all have ended, or with an error when ctx ends first; the stop continues then. It may be called more than once.
func (p *ControlPlane) Stop(ctx context.Context) error {
	p.shutdown()
	select {
	case <-p.done:
		return p.stopErr
	case <-ctx.Done():
		return fmt.Errorf("stop control plane %s: %w", p.config.Name, context.Cause(ctx))
	}
}

// watchServer stops the control plane when its API server ends by itself.
func (p *ControlPlane) watchServer() {
	safego.Go(&p.background, "wait for the API server", func() {
		select {
		case <-p.stopping.Done():
		case <-p.run.done:
			err := errors.New("the API server ended")
			if p.run.err != nil {
				err = fmt.Errorf("%w: %w", err, p.run.err)
			}
			p.fail(err)
		}
	}, p.fail)
}

// fail starts to stop a control plane that can't continue.
func (p *ControlPlane) fail(err error) {
	p.stopOnce.Do(func() {
		p.err = fmt.Errorf("control plane %s: %w", p.config.Name, err)
		go safego.Run("stop a control plane", p.unwind, nil)
	})
}

// shutdown starts to stop what was started. It does not wait.
func (p *ControlPlane) shutdown() {
	p.stopOnce.Do(func() { go safego.Run("stop a control plane", p.unwind, nil) })
}

// unwind stops what was started, in this order. If a step panics, the stop fails, but the following steps run, because
// what they stop would keep the store in use.
func (p *ControlPlane) unwind() {
	if p.config.Quota != nil {
		p.config.Quota.Close()
	}
	defer close(p.done)
	p.stop()
	var failed []error
	step := func(doing string, f func()) {
		safego.Run(doing, f, func(err error) { failed = append(failed, err) })
	}
	if p.controllers != nil {
		step("stop controllers", p.controllers.Stop)
	}
	if p.run != nil {
		step("wait for hooks", p.waitHooks)
	}
	if p.chain != nil {
		step("drop OpenAPI documents", p.chain.documents.Close)
		step("stop informers", p.chain.informers.stop) // while the server can still answer their requests
	}
	step("end requests", func() { p.gate.Close(drainTimeout) })
	p.background.Wait()
	step("end admission", p.endAdmission)
	step("stop the API server", p.stopServer)
	if p.store != nil {
		step("note who has access", func() {
			if err := p.noteAccess(); err != nil { // the space stops nevertheless, with what was noted before
				p.config.Logger.Error(err, "Could not note who has access to a space whose store is in a database server")
			}
		})
		step("close the store", func() { failed = append(failed, p.store.Close()) })
	}
	if err := errors.Join(failed...); err != nil {
		p.stopErr = fmt.Errorf("stop control plane %s: %w", p.config.Name, err)
	}
}

func (p *ControlPlane) endAdmission() {
	if p.run != nil {
		<-p.chain.admission.Close()
	}
}

func (p *ControlPlane) stopServer() {
	if p.run != nil {
		p.run.cancel()
		<-p.run.done
	} else if p.chain != nil {
		p.chain.server.GenericAPIServer.Destroy()
	}
}

// waitHooks waits for the API server's post-start hooks. The server must not end before them: some fail when they are
// interrupted, and upstream ends the process when one fails.
func (p *ControlPlane) waitHooks() {
	ctx, cancel := context.WithTimeout(context.Background(), hookTimeout)
	defer cancel()
	if err := p.hooks.waitAll(ctx); errors.Is(err, context.DeadlineExceeded) {
		p.config.Logger.Info("Stopped waiting for post-start hooks that have not finished", "hooks", p.hooks.pending())
	}
}

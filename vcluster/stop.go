// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// drainPatience is how long a stop waits for requests in flight before it ends
// them. Watches end at once.
const drainPatience = 3 * time.Second

// Stop ends controllers, the API server and informers, in this order, and
// closes the store. It returns when all have ended, or with an error when ctx
// ends first; the stop goes on then. It may be called more than once.
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
	p.background.Go(func() {
		select {
		case <-p.stopping.Done():
		case <-p.run.done:
			p.stopOnce.Do(func() {
				p.err = fmt.Errorf("control plane %s: the API server ended", p.config.Name)
				if p.run.err != nil {
					p.err = fmt.Errorf("control plane %s: the API server ended: %w", p.config.Name, p.run.err)
				}
				go p.unwind()
			})
		}
	})
}

// shutdown begins to stop what was started. It does not wait.
func (p *ControlPlane) shutdown() {
	p.stopOnce.Do(func() { go p.unwind() })
}

func (p *ControlPlane) unwind() {
	defer close(p.done)
	p.stop()
	if p.controllers != nil {
		p.controllers.stop()
	}
	if p.run != nil {
		p.waitHooks()
	}
	if p.chain != nil {
		p.chain.informers.stop() // while there is a server to answer them
	}
	p.gate.close(drainPatience)
	p.background.Wait()
	if p.run != nil {
		<-p.chain.admission.close()
		p.run.cancel()
		<-p.run.done
	} else if p.chain != nil {
		p.chain.server.GenericAPIServer.Destroy()
	}
	if p.store != nil {
		if err := p.store.close(); err != nil {
			p.stopErr = fmt.Errorf("stop control plane %s: %w", p.config.Name, err)
		}
	}
}

// waitHooks waits for the API server's post-start hooks. The server must not end
// before them: some fail when they are interrupted, and upstream ends the
// process when one fails.
func (p *ControlPlane) waitHooks() {
	ctx, cancel := context.WithTimeout(context.Background(), hookPatience)
	defer cancel()
	if err := p.hooks.waitAll(ctx); errors.Is(err, context.DeadlineExceeded) {
		p.config.Logger.Info("Stopping before these hooks have finished", "hooks", p.hooks.pending())
	}
}

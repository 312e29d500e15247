// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"context"
	"sync"
	"time"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/gateway/policy"
	"github.com/berth-dev/berth/identity"
	"github.com/berth-dev/berth/internal/fielderror"
	"github.com/berth-dev/berth/internal/safego"
	"github.com/berth-dev/berth/platform/systemroles"
)

// readPolicy reads the authorization policy.
func (p *Platform) readPolicy(context.Context) (err error) {
	if p.policy, err = policy.Open(p.config.AuthorizationPolicy, p.logger); err != nil {
		return fielderror.New("authorization-policy-file", p.config.AuthorizationPolicy, "%w", err)
	}
	p.grant()
	return nil
}

// followGrants follows the changes of the policy, and the SystemRoles of the host. Until these are read, they grant nothing.
func (p *Platform) followGrants(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	var group sync.WaitGroup
	changed := func() {
		p.grant()
		p.manager.SendAccess(ctx)
	}
	p.roles.Store(systemroles.New(changed))
	safego.Go(&group, "follow the authorization policy", func() { p.policy.Run(ctx, changed) }, nil)
	safego.Go(&group, "follow system roles", func() { p.roles.Load().Run(ctx, p.manager.Client()) }, nil)
	p.onStop(func(context.Context) {
		cancel()
		group.Wait()
	})
	return nil
}

// grant hands what the platform grants to the spaces, and to an embedded host.
func (p *Platform) grant() {
	p.granting.Lock()
	defer p.granting.Unlock()
	p.config.Specs.SetGranted(p.grantedIn)
	p.hostGrants.Set(&access.State{Space: gateway.SystemSpace, Tenant: v1alpha1.SystemTenant, Granted: p.grantedIn(gateway.SystemSpace, v1alpha1.SystemTenant)})
}

// grantedIn returns which rights the platform gives in a space to users whom it knows.
func (p *Platform) grantedIn(space, tenant string) []*access.Set {
	all := p.policy.Granted(space)
	if roles := p.roles.Load(); roles != nil {
		all = append(all, roles.Granted(space, tenant)...)
	}
	return all
}

// givesAccess implements [gateway.Router.GivesAccess].
func (p *Platform) givesAccess(ctx context.Context, space string, visitor *identity.Identity) bool {
	if space == gateway.SystemSpace {
		return p.config.Host.Embedded && p.hostGrants.Accepts(visitor, time.Now())
	}
	return p.manager.GivesAccess(ctx, space, visitor)
}

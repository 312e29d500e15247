// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"context"
	"net/http"

	"k8s.io/apiserver/pkg/authentication/user"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/gateway/audit"
	"github.com/berth-dev/berth/identity"
	"github.com/berth-dev/berth/shard/credentials"
)

// startAudit records requests, until the servers have stopped.
func (p *Platform) startAudit(context.Context) (err error) {
	p.auditor, err = audit.New(audit.Config{
		Files: p.config.Audit, SettingsOf: p.config.Specs.Audit, UserOf: userOf, Logger: p.logger.WithName("audit"),
	})
	if err != nil {
		return err
	}
	p.onStop(p.auditor.Stop)
	return nil
}

// userOf returns the user of a request whose credential the gateway has accepted.
func userOf(r *http.Request) user.Info {
	if proven := access.UserOf(identity.From(r.Context())); proven != nil {
		return proven
	}
	name, groups := credentials.ClientOf(r)
	return &user.DefaultInfo{Name: name, Groups: groups}
}

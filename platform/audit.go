// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"context"

	"github.com/berth-dev/berth/gateway/audit"
	"github.com/berth-dev/berth/shard/credentials"
)

// startAudit records requests, until the servers have stopped.
func (p *Platform) startAudit(context.Context) (err error) {
	p.auditor, err = audit.New(audit.Config{
		Files: p.config.Audit, SettingsOf: p.config.Specs.Audit, UserOf: credentials.ClientOf, Logger: p.logger.WithName("audit"),
	})
	if err != nil {
		return err
	}
	p.onStop(p.auditor.Stop)
	return nil
}

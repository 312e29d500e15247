// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"

	"github.com/berth-dev/berth/platform/publications"
)

// startPublications reads and watches the objects that are published to spaces. It waits for them, so that no space serves a
// request before it has what its publications say.
func (m *Manager) startPublications(ctx context.Context) (err error) {
	if m.publications, err = publications.New(m.config.Specs.PublicationsChanged, m.logger); err != nil {
		return err
	}
	stop := m.publications.Run(ctx, m.objects.Client)
	m.undoOpen.add(func(context.Context) { stop() })
	m.config.Specs.SetPublications(m.publications)
	return nil
}

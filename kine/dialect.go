// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"

	"github.com/k3s-io/kine/pkg/drivers/generic"
	kineserver "github.com/k3s-io/kine/pkg/server"
)

// dialect is how kine's log talks to the file: reads go to the embedded Generic's connections, which can't write, and
// writes to the committer. Compactions go past it.
type dialect struct {
	*generic.Generic
	committer *committer
}

var _ kineserver.Dialect = (*dialect)(nil)

//nolint:revive // the interface's names
func (d *dialect) Insert(ctx context.Context, key string, create, delete bool, createRevision, previousRevision, ttl int64, value []byte) (int64, error) {
	return d.committer.append(&row{ctx: ctx, key: key, value: value, frees: frees(key, delete), creates: create, deletes: delete,
		args: []any{key, create, delete, createRevision, previousRevision, ttl, value}})
}

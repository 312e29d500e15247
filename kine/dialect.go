// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"

	"github.com/k3s-io/kine/pkg/drivers/generic"
	kineserver "github.com/k3s-io/kine/pkg/server"
)

// dialect connects kine's log to the file: reads use the connections of the embedded Generic, which can't write, and
// writes use the committer. Compactions don't use it.
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

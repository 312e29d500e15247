// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"strings"

	kineserver "github.com/k3s-io/kine/pkg/server"

	"github.com/berth-dev/berth/bounds"
)

// objectsPrefix is what keys of objects begin with. The store's own don't, but for the one that tells its health.
const objectsPrefix = "/registry/"

// countSQL counts keys that are there, from the index alone but for each key's newest row.
const countSQL = `SELECT COUNT(*) - COUNT(CASE name WHEN '/registry/health' THEN 1 END) FROM
	(SELECT MAX(id) AS newest FROM kine WHERE name >= '/registry/' AND name < '/registry0' GROUP BY name) AS listed
	CROSS JOIN kine ON kine.id = listed.newest WHERE deleted = 0`

// objects counts what a store holds, as it is committed. It is the committer's.
type objects struct {
	account *bounds.Account
	count   int64
}

func countObjects(ctx context.Context, q querier, a *bounds.Account) (objects, error) {
	o := objects{account: a}
	err := q.QueryRowContext(ctx, countSQL).Scan(&o.count)
	a.Set(bounds.Objects, o.count)
	return o, err
}

// admit says by how much a row changes the count, or that it may not be written to a store that will have so many more.
func (o *objects) admit(r *row, more int64) (change int64, err error) {
	switch {
	case !strings.HasPrefix(r.key, objectsPrefix), r.key == kineserver.HealthKey:
		return 0, nil
	case r.deletes:
		return -1, nil
	case !r.creates:
		return 0, nil
	}
	if limit := o.account.Limit(bounds.Objects); o.count+more+1 > limit {
		o.account.Refuse(bounds.Objects)
		return 0, &bounds.ExceededError{Quantity: bounds.Objects, Asked: 1, Used: o.count + more, Limit: limit}
	}
	return 1, nil
}

func (o *objects) committed(change int64) {
	o.count += change
	o.account.Set(bounds.Objects, o.count)
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kine

import (
	"context"
	"strings"

	kineserver "github.com/k3s-io/kine/pkg/server"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/kine/dbms"
)

// countSQL counts the existing keys in a range. It reads the index, and only the newest row of each key.
const countSQL = `SELECT COUNT(*) - COUNT(CASE name WHEN '/registry/health' THEN 1 END) FROM
	(SELECT MAX(id) AS newest FROM kine WHERE name >= ? AND name < ? GROUP BY name) AS listed
	CROSS JOIN kine ON kine.id = listed.newest WHERE deleted = 0`

// kind is a set of objects whose number is limited, by the prefix of their keys.
type kind struct {
	prefix   string
	quantity bounds.Quantity
}

// kinds are all objects, and those whose number adds to the cost of each request or each pod of the space. The store's
// own keys are not counted.
var kinds = [...]kind{
	{"/registry/", bounds.Objects},
	{"/registry/clusterrolebindings/", bounds.ClusterRoleBindings},
	{"/registry/rolebindings/", bounds.RoleBindings},
	{"/registry/horizontalpodautoscalers/", bounds.Autoscalers},
	{"/registry/resourcequotas/", bounds.ResourceQuotas},
	{"/registry/servicecidrs/", bounds.ServiceRanges},
	{"/registry/networkpolicies/", bounds.NetworkPolicies},
	{"/registry/poddisruptionbudgets/", bounds.DisruptionBudgets},
	{"/registry/deployments/", bounds.Deployments},
}

// numbers has one count for each of kinds.
type numbers [len(kinds)]int64

// objects counts the objects in a store as they are committed. Only the committer uses it.
type objects struct {
	account *bounds.Account
	count   numbers
}

func countObjects(ctx context.Context, db database, a *bounds.Account) (objects, error) {
	return countObjectsWith(ctx, db.Writer(), db.Adapt(countSQL), a)
}

func countObjectsWith(ctx context.Context, q dbms.Querier, statement string, a *bounds.Account) (objects, error) {
	o := objects{account: a}
	for i, k := range kinds {
		end := strings.TrimSuffix(k.prefix, "/") + "0" // the character after a slash
		if err := q.QueryRowContext(ctx, statement, k.prefix, end).Scan(&o.count[i]); err != nil {
			return o, err
		}
		a.Set(k.quantity, o.count[i])
	}
	return o, nil
}

// admit adds a row's changes to the counts of a commit, or returns an error if the store may have no more objects.
func (o *objects) admit(r *row, more *numbers) error {
	if r.key == kineserver.HealthKey || !r.deletes && !r.creates {
		return nil
	}
	changed := *more
	for i, k := range kinds {
		switch {
		case !strings.HasPrefix(r.key, k.prefix):
			continue
		case r.deletes:
			changed[i]--
			continue
		}
		changed[i]++
		if limit := o.account.Limit(k.quantity); o.count[i]+changed[i] > limit {
			o.account.Refuse(k.quantity)
			return &bounds.ExceededError{Quantity: k.quantity, Asked: 1, Used: o.count[i] + more[i], Limit: limit}
		}
	}
	*more = changed
	return nil
}

func (o *objects) committed(change numbers) {
	for i, k := range kinds {
		if change[i] != 0 {
			o.count[i] += change[i]
			o.account.Set(k.quantity, o.count[i])
		}
	}
}

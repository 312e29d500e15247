// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer/declaration"
	"github.com/berth-dev/berth/translate"
)

// LabelAggregateTo is on ClusterRoles whose rules are added to an aggregated ClusterRole of the chart. See [AggregateTo].
const LabelAggregateTo = translate.Domain + "/aggregate-to"

// AggregateTo returns the value of [LabelAggregateTo] for an aggregated ClusterRole: its name, or a hash of one that is too long for a
// label. The template berth.aggregateTo of the chart does the same.
func AggregateTo(role string) string {
	if len(role) <= validation.LabelValueMaxLength {
		return role
	}
	hash := sha256.Sum256([]byte(role))
	return hex.EncodeToString(hash[:])[:validation.LabelValueMaxLength]
}

const (
	// SpaceRoleSuffix ends the name of the ClusterRole of spaces' accounts that the chart makes. What is before it is the same for all
	// ClusterRoles of a release.
	SpaceRoleSuffix = "-space"
	// syncsSuffix ends the name of the ClusterRole by which the platform's account watches what is synced by ResourceSyncs.
	syncsSuffix = "-syncs"
)

// SyncRoles returns the ClusterRoles that add the rights of a declaration to those of the chart's ClusterRoles: [SyncRule] to those of
// spaces' accounts, for direction ToHost, [DedicatedSyncRule] to those of accounts of dedicated spaces, and [SyncWatchRule] to those of the
// platform's account. spaceRole is the name of the ClusterRole of spaces' accounts, see [BoundTo].
func SyncRoles(d *declaration.Declaration, spaceRole string) (roles []client.Object) {
	add := func(to string, rule rbacv1.PolicyRule) {
		roles = append(roles, &rbacv1.ClusterRole{
			ObjectMeta: metav1.ObjectMeta{
				Name:   to + "-" + d.Name,
				Labels: map[string]string{translate.LabelManagedBy: translate.ManagedBy, LabelAggregateTo: AggregateTo(to)},
			},
			Rules: []rbacv1.PolicyRule{rule},
		})
	}
	if d.FromHost {
		add(spaceRole+DedicatedReaderSuffix, DedicatedSyncRule(d))
	} else {
		add(spaceRole, SyncRule(d))
		add(spaceRole+DedicatedSuffix, DedicatedSyncRule(d))
	}
	add(strings.TrimSuffix(spaceRole, SpaceRoleSuffix)+syncsSuffix, SyncWatchRule(d))
	return roles
}

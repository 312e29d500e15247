// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"crypto/sha256"
	"encoding/hex"

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

// SyncRoles returns the ClusterRoles that add the rights of a declaration to those of the chart's ClusterRoles: [SyncRule] to those of
// spaces' accounts, for direction ToHost, and [SyncWatchRule] to those of the platform's account. The names of the chart's ClusterRoles
// begin with release, which is NAMESPACE-RELEASE by default.
func SyncRoles(d *declaration.Declaration, release string) (roles []client.Object) {
	add := func(to string, rule rbacv1.PolicyRule) {
		roles = append(roles, &rbacv1.ClusterRole{
			TypeMeta: kind("rbac.authorization.k8s.io/v1", "ClusterRole"),
			ObjectMeta: metav1.ObjectMeta{
				Name:   to + "-" + d.Name,
				Labels: map[string]string{translate.LabelManagedBy: translate.ManagedBy, LabelAggregateTo: AggregateTo(to)},
			},
			Rules: []rbacv1.PolicyRule{rule},
		})
	}
	if !d.FromHost {
		add(release+"-space", SyncRule(d))
	}
	add(release+"-syncs", SyncWatchRule(d))
	return roles
}

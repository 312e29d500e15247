// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"context"
	"errors"
	"fmt"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/isolation/hostpolicy"
	"github.com/berth-dev/berth/syncer/declaration"
	"github.com/berth-dev/berth/translate"
)

const (
	// syncPolicyPrefix begins the names of the policies of ResourceSyncs.
	syncPolicyPrefix = "berth-sync-"
	// AnnotationDeclaration is on the policies of ResourceSyncs: the version of the declaration that they were made for.
	AnnotationDeclaration = translate.Domain + "/declaration"
)

// SyncPolicy returns the admission policy that restricts what spaces' accounts write of the resource of a declaration, and its binding. It
// returns nothing for a declaration with direction FromHost, because accounts have no
// rights on its resource.
func SyncPolicy(d *declaration.Declaration) []client.Object {
	if d.FromHost {
		return nil
	}
	// All versions are matched, because RBAC has no versions.
	rule := admissionv1.NamedRuleWithOperations{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update, admissionv1.Delete},
		Rule: admissionv1.Rule{
			APIGroups: []string{d.GVR.Group}, APIVersions: []string{"*"}, Resources: []string{d.GVR.Resource}, Scope: ptr.To(admissionv1.NamespacedScope),
		},
	}}
	at := metav1.ObjectMeta{
		Name:        syncPolicyPrefix + d.Name,
		Labels:      map[string]string{translate.LabelManagedBy: translate.ManagedBy},
		Annotations: map[string]string{AnnotationDeclaration: d.Version},
	}
	return bound(at, inSpaces([]admissionv1.NamedRuleWithOperations{rule}, hostpolicy.Declared(d)))
}

// SyncRule returns the right of a space's account, in the space's namespace, on the resource of a declaration with direction ToHost.
func SyncRule(d *declaration.Declaration) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{d.GVR.Group}, Resources: []string{d.GVR.Resource}, Verbs: []string{"get", "create", "update", "delete"}}
}

// SyncWatchRule returns the right of the platform's account to watch the resource of a declaration on the host. If objects name Services, it
// also deletes those of spaces whose sync has ended.
func SyncWatchRule(d *declaration.Declaration) rbacv1.PolicyRule {
	verbs := []string{"get", "list", "watch"}
	if d.NamesServices {
		verbs = append(verbs, "delete")
	}
	return rbacv1.PolicyRule{APIGroups: []string{d.GVR.Group}, Resources: []string{d.GVR.Resource}, Verbs: verbs}
}

// AlsoSyncing gives the space's account a right in the space's namespace, in addition to its others: that of [SyncRule]. It has no effect
// with [BoundTo], because the ClusterRole there has it.
func AlsoSyncing(rule rbacv1.PolicyRule) Option {
	return func(s *settings) { s.synced = append(s.synced, rule) }
}

// InstallSync writes the [SyncPolicy] of a declaration, as [InstallPolicies] does.
func InstallSync(ctx context.Context, host client.Client, d *declaration.Declaration) error {
	return install(ctx, host, SyncPolicy(d))
}

// ErrSyncPolicy means that the host doesn't have the policy of a ResourceSync.
var ErrSyncPolicy = errors.New("the policy of the ResourceSync is not on the host")

// CheckSync returns [ErrSyncPolicy] unless the host has the [SyncPolicy] of a declaration. It doesn't check whether the host enforces the policy
// already, nor the rights.
func CheckSync(ctx context.Context, host client.Client, d *declaration.Declaration) error {
	for _, want := range SyncPolicy(d) {
		live, _ := want.DeepCopyObject().(client.Object)
		switch err := host.Get(ctx, client.ObjectKeyFromObject(want), live); {
		case apierrors.IsNotFound(err):
			return fmt.Errorf("%w: %s is missing; run 'berth sync-policy %s | kubectl apply -f -', with --space-role if the chart has another name than in the guide", ErrSyncPolicy, describe(want), d.Name)
		case err != nil:
			return fmt.Errorf("read the policy of the ResourceSync %s: %w", d.Name, err)
		}
		want.SetAnnotations(nil) // the version also differs for what policies don't depend on
		if field := difference(want, live, false); field != "" {
			return fmt.Errorf("%w: %s differs in %s; run 'berth sync-policy %s | kubectl apply -f -', with --space-role if the chart has another name than in the guide", ErrSyncPolicy, describe(want), field, d.Name)
		}
	}
	return nil
}

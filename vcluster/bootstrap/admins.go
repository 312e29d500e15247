// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package bootstrap

import (
	"context"
	"fmt"
	"slices"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	rbacinformers "k8s.io/client-go/informers/rbac/v1"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/vcluster/pki"
)

const (
	// adminBinding is the name of the ClusterRoleBinding that gives [pki.AdminGroup] all rights.
	adminBinding = pki.AdminGroup
	adminRole    = "cluster-admin"

	// adminPause is how long a repair of the admins' rights is followed by none. Who breaks them again and again makes
	// requests for that, which are limited.
	adminPause = 50 * time.Millisecond
)

// adminAccess keeps the rights of the space's admins. A tenant can take them away, as in any cluster; they come back at
// once, so that nobody locks the admins out of a space, not even one who may do everything in it.
//
// Upstream's reconciliation of RBAC's default objects would not do: it comes with a start only, and leaves alone what
// has the annotation rbac.authorization.kubernetes.io/autoupdate=false, which a tenant can set.
type adminAccess struct {
	client   rbacclient.RbacV1Interface
	roles    rbacinformers.ClusterRoleInformer
	bindings rbacinformers.ClusterRoleBindingInformer
	logger   klog.Logger
	due      chan struct{} // something may have changed
}

// NewAdminAccess keeps the rights of admins by the client. It sees by the informers what others do to them.
func NewAdminAccess(client rbacclient.RbacV1Interface, informers rbacinformers.Interface, logger klog.Logger) *adminAccess {
	return &adminAccess{
		client: client, roles: informers.ClusterRoles(), bindings: informers.ClusterRoleBindings(), logger: logger, due: make(chan struct{}, 1),
	}
}

// Watch has what happens to the admins' rights noticed. The informers may run already.
func (a *adminAccess) Watch() error {
	for name, informer := range map[string]cache.SharedIndexInformer{adminRole: a.roles.Informer(), adminBinding: a.bindings.Informer()} {
		_, err := informer.AddEventHandler(cache.FilteringResourceEventHandler{
			FilterFunc: func(obj any) bool {
				key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
				return err == nil && key == name
			},
			Handler: cache.ResourceEventHandlerFuncs{
				AddFunc:    func(any) { a.look() },
				UpdateFunc: func(any, any) { a.look() },
				DeleteFunc: func(any) { a.look() },
			},
		})
		if err != nil {
			return fmt.Errorf("watch the rights of admins: %w", err)
		}
	}
	return nil
}

func (a *adminAccess) look() {
	select {
	case a.due <- struct{}{}:
	default:
	}
}

// Run repairs the admins' rights whenever they change, until ctx ends.
func (a *adminAccess) Run(ctx context.Context) {
	for {
		select {
		case <-a.due:
		case <-ctx.Done():
			return
		}
		backoff := wait.Backoff{Duration: adminPause, Factor: 2, Steps: 10, Cap: time.Minute}
		_ = backoff.DelayFunc().Until(ctx, true, true, func(ctx context.Context) (bool, error) {
			if a.intact() {
				return true, nil
			}
			err := a.ensure(ctx)
			if err != nil && ctx.Err() == nil {
				a.logger.Error(err, "Could not restore the rights of admins; Berth retries")
			}
			return false, nil // what was written has to come back by the watch
		})
	}
}

// intact reports whether the authorizer, which reads the same informers, gives admins their rights.
func (a *adminAccess) intact() bool {
	binding, err := a.bindings.Lister().Get(adminBinding)
	if err != nil || !bindsAdmins(binding) {
		return false
	}
	role, err := a.roles.Lister().Get(adminRole)
	return err == nil && allowsAll(role)
}

// ensure writes what is missing. It replaces rules and subjects: the store might not take more of them.
func (a *adminAccess) ensure(ctx context.Context) error {
	if err := a.ensureRole(ctx); err != nil {
		return fmt.Errorf("restore cluster role %s: %w", adminRole, err)
	}
	if err := a.ensureBinding(ctx); err != nil {
		return fmt.Errorf("restore cluster role binding %s: %w", adminBinding, err)
	}
	return nil
}

func (a *adminAccess) ensureRole(ctx context.Context) error {
	roles := a.client.ClusterRoles()
	role, err := roles.Get(ctx, adminRole, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
		role = &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: adminRole}, Rules: allRules()}
		_, err = roles.Create(ctx, role, metav1.CreateOptions{})
	case err == nil && !allowsAll(role):
		// A role that is aggregated loses all rules that no other has.
		role.AggregationRule, role.Rules = nil, allRules()
		_, err = roles.Update(ctx, role, metav1.UpdateOptions{})
	}
	return err
}

func (a *adminAccess) ensureBinding(ctx context.Context) error {
	bindings := a.client.ClusterRoleBindings()
	binding, err := bindings.Get(ctx, adminBinding, metav1.GetOptions{})
	if err == nil && binding.RoleRef != adminRoleRef() { // it can't be changed
		if len(binding.Finalizers) > 0 {
			binding.Finalizers = nil
			if binding, err = bindings.Update(ctx, binding, metav1.UpdateOptions{}); err != nil {
				return err
			}
		}
		err = bindings.Delete(ctx, adminBinding, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &binding.UID}})
		if err == nil {
			err = apierrors.NewNotFound(rbacv1.Resource("clusterrolebindings"), adminBinding)
		}
	}
	switch {
	case apierrors.IsNotFound(err):
		_, err = bindings.Create(ctx, &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: adminBinding}, RoleRef: adminRoleRef(), Subjects: []rbacv1.Subject{adminSubject()},
		}, metav1.CreateOptions{})
	case err == nil && !bindsAdmins(binding):
		binding.Subjects = []rbacv1.Subject{adminSubject()}
		_, err = bindings.Update(ctx, binding, metav1.UpdateOptions{})
	}
	return err
}

func adminRoleRef() rbacv1.RoleRef {
	return rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: adminRole}
}

func adminSubject() rbacv1.Subject {
	return rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: rbacv1.GroupKind, Name: pki.AdminGroup}
}

func bindsAdmins(b *rbacv1.ClusterRoleBinding) bool {
	return b.RoleRef == adminRoleRef() && slices.Contains(b.Subjects, adminSubject())
}

// allRules are those of upstream's cluster-admin.
func allRules() []rbacv1.PolicyRule {
	all := []string{rbacv1.VerbAll}
	return []rbacv1.PolicyRule{{APIGroups: all, Resources: all, Verbs: all}, {NonResourceURLs: all, Verbs: all}}
}

func allowsAll(r *rbacv1.ClusterRole) bool {
	if r.AggregationRule != nil {
		return false
	}
	for _, want := range allRules() {
		if !slices.ContainsFunc(r.Rules, func(have rbacv1.PolicyRule) bool { return equality.Semantic.DeepEqual(have, want) }) {
			return false
		}
	}
	return true
}

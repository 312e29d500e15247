// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	rbacv1apply "k8s.io/client-go/applyconfigurations/rbac/v1"
	"k8s.io/client-go/kubernetes"
	rbaclisters "k8s.io/client-go/listers/rbac/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-controller-manager/app"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/internal/safego"
)

// aggregator gives each ClusterRole with an aggregation rule the rules of the roles that it selects. It does what upstream's
// controller does, which compares each rule with each other: 8,000 of them keep a processor busy for half a minute.
type aggregator struct {
	client kubernetes.Interface
	roles  rbaclisters.ClusterRoleLister
	queue  workqueue.TypedRateLimitingInterface[string]
}

// aggregatorManager is who writes rules, as upstream has it.
const aggregatorManager = "clusterrole-aggregation-controller"

func newAggregator(c app.ControllerContext) (app.Controller, error) {
	client, err := c.NewClient(aggregatorManager)
	if err != nil {
		return nil, err
	}
	roles := c.InformerFactory.Rbac().V1().ClusterRoles()
	a := &aggregator{client: client, roles: roles.Lister(), queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[string]())}
	_, err = roles.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { a.enqueue() }, UpdateFunc: func(any, any) { a.enqueue() }, DeleteFunc: func(any) { a.enqueue() },
	})
	return a, err
}

// enqueue adds all roles that aggregate others: any of them may select the one that has changed.
func (a *aggregator) enqueue() {
	roles, err := a.roles.List(labels.Everything())
	if err != nil {
		return // the lister has no errors of its own
	}
	for _, r := range roles {
		if r.AggregationRule != nil {
			a.queue.Add(r.Name)
		}
	}
}

func (*aggregator) Name() string { return names.ClusterRoleAggregationController }

// Run works until ctx ends.
func (a *aggregator) Run(ctx context.Context) {
	var stopping sync.WaitGroup
	defer stopping.Wait()
	safego.Go(&stopping, "stop aggregating cluster roles", func() {
		<-ctx.Done()
		a.queue.ShutDown()
	}, nil)
	for {
		name, end := a.queue.Get()
		if end {
			return
		}
		if err := a.reconcile(ctx, name); err != nil {
			klog.FromContext(ctx).Error(err, "Aggregate cluster role", "role", name)
			a.queue.AddRateLimited(name)
		} else {
			a.queue.Forget(name)
		}
		a.queue.Done(name)
	}
}

func (a *aggregator) reconcile(ctx context.Context, name string) error {
	role, err := a.roles.Get(name)
	if err != nil || role.AggregationRule == nil {
		return nil //nolint:nilerr // It has been deleted.
	}
	all, err := a.roles.List(labels.Everything())
	if err != nil {
		return err
	}
	rules, err := aggregate(role, all)
	if err != nil || equality.Semantic.DeepEqual(rules, role.Rules) {
		return err
	}
	apply := rbacv1apply.ClusterRole(name)
	for _, r := range rules {
		rule := rbacv1apply.PolicyRule()
		rule.Verbs, rule.APIGroups, rule.Resources, rule.ResourceNames, rule.NonResourceURLs = r.Verbs, r.APIGroups, r.Resources, r.ResourceNames, r.NonResourceURLs
		apply.WithRules(rule)
	}
	_, err = a.client.RbacV1().ClusterRoles().Apply(ctx, apply, metav1.ApplyOptions{FieldManager: aggregatorManager, Force: true})
	return err
}

// maxAggregated is how many rules are looked at for one role.
const maxAggregated = 50_000

var errTooManyRules = errors.New("too many rules to aggregate")

// aggregate returns the rules that a role is to have, in upstream's order.
func aggregate(role *rbacv1.ClusterRole, all []*rbacv1.ClusterRole) ([]rbacv1.PolicyRule, error) {
	sorted := slices.Clone(all)
	slices.SortFunc(sorted, func(a, b *rbacv1.ClusterRole) int { return cmp.Compare(a.Name, b.Name) })
	rules, known, seen := []rbacv1.PolicyRule{}, map[string]bool{}, 0
	for _, s := range role.AggregationRule.ClusterRoleSelectors {
		selector, err := metav1.LabelSelectorAsSelector(&s)
		if err != nil {
			return nil, fmt.Errorf("selector of cluster role %s: %w", role.Name, err)
		}
		for _, other := range sorted {
			if other.Name == role.Name || !selector.Matches(labels.Set(other.Labels)) {
				continue
			}
			if seen += len(other.Rules); seen > maxAggregated {
				return nil, fmt.Errorf("cluster role %s: %w", role.Name, errTooManyRules)
			}
			for _, rule := range other.Rules {
				if text := textOf(rule); !known[text] {
					known[text] = true
					rules = append(rules, rule)
				}
			}
			if err := bounds.RoleRules.Check(int64(len(rules))); err != nil {
				return nil, fmt.Errorf("rules that cluster role %s aggregates: %w", role.Name, err)
			}
		}
	}
	return rules, nil
}

// textOf is the same for rules that are semantically equal.
func textOf(r rbacv1.PolicyRule) string {
	text, err := json.Marshal([][]string{slices.Concat(r.Verbs), slices.Concat(r.APIGroups), slices.Concat(r.Resources), slices.Concat(r.ResourceNames), slices.Concat(r.NonResourceURLs)})
	if err != nil {
		return "" // strings have JSON
	}
	return string(text)
}

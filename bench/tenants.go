// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/procfs"
	"golang.org/x/sync/errgroup"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/bench/internal/report"
	"github.com/berth-dev/berth/bench/internal/side"
)

const (
	// treeDepth is how many tenants are above the lowest one. It is the default limit of a BerthConfiguration.
	treeDepth = 8
	// tenantWriters is how many clients write at once. The operator reconciles as many tenants.
	tenantWriters = 16
	// tenantsTime is how long a change may take.
	tenantsTime = 5 * time.Minute
	// benchRoles is the name of what the peer's role bindings bind.
	benchRoles = "cluster-admin"
	// firstOwner is the root's owner before the changes that are measured.
	firstOwner = "the-first"
)

// tenantTree is a tree of tenants on a host, whose operator is in a process of its own.
type tenantTree struct {
	host      client.WithWatch
	plain     kubernetes.Interface
	processes map[string]procfs.Proc
	size      int
}

// measureTenants measures how long a changed right of the root of a tree takes to the spaces of all tenants below, and what memory
// the operator takes for them.
func measureTenants(ctx context.Context, b *bench, s *sides) error {
	tree, err := openTenants(ctx, b, s)
	if err != nil {
		return err
	}
	if err := tree.create(ctx); err != nil {
		return err
	}
	settle := func(owner string) error {
		return errors.Join(tree.awaitStatuses(ctx, owner), s.quiet(ctx, side.Operator, side.Host))
	}
	if err := settle(firstOwner); err != nil {
		return err
	}
	var cpu []string
	p, err := b.inTurn(ctx, "tenants_1000_s", b.repeats, &plane{child: s.running[side.Host]}, func(repeat int) (float64, error) {
		owner, before := fmt.Sprint("owner-", repeat), tree.cpu()
		seconds, err := tree.change(ctx, owner)
		cpu = append(cpu, before.until(tree.cpu()))
		if err == nil {
			err = settle(owner)
		}
		return seconds, err
	}, func(repeat int) (float64, error) {
		seconds, err := tree.bind(ctx, fmt.Sprint("owner-", repeat))
		return seconds, errors.Join(err, s.quiet(ctx, side.Operator, side.Host))
	})
	if err != nil {
		return err
	}
	b.add("tenants_1000_s", "s", p, report.AtMost(10))
	b.report.Note("tenants_1000_s: %d tenants in a tree of depth %d; CPU time of each change: %s", tree.size, treeDepth, strings.Join(cpu, "; "))
	if err := b.keepProfiles(ctx, s.running[side.Operator], "tenants"); err != nil {
		return err
	}
	status, err := tree.processes[side.Operator].NewStatus()
	if err != nil {
		return fmt.Errorf("read the status of the operator's process: %w", err)
	}
	b.report.Add("operator_rss_mib", "MiB", mib(status.VmHWM), 0, report.AtMost(256))
	b.report.Note("operator_rss_mib: the most that it was; %.4g MiB at the end", mib(status.VmRSS))
	return nil
}

func mib(bytes uint64) float64 { return float64(bytes) / (1 << 20) }

func openTenants(ctx context.Context, b *bench, s *sides) (*tenantTree, error) {
	if _, err := s.get(ctx, side.Operator); err != nil {
		return nil, err
	}
	plane, err := s.hostPlane()
	if err != nil {
		return nil, err
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), rbacv1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("register types: %w", err)
	}
	tree := &tenantTree{size: b.tenants, processes: map[string]procfs.Proc{}}
	if tree.host, err = client.NewWithWatch(rest.CopyConfig(plane.config), client.Options{Scheme: scheme}); err != nil {
		return nil, fmt.Errorf("make host client: %w", err)
	}
	if tree.plain, err = kubernetes.NewForConfig(plane.config); err != nil {
		return nil, fmt.Errorf("make host client: %w", err)
	}
	for _, name := range []string{side.Host, side.Operator} {
		if tree.processes[name], err = procfs.NewProc(s.running[name].cmd.Process.Pid); err != nil {
			return nil, fmt.Errorf("find the process of %s: %w", name, err)
		}
	}
	return tree, nil
}

// tenantName is the name of a tenant; that of the root is for 0.
func tenantName(i int) string { return fmt.Sprint("t", i) }

// newTenants returns tenants from the top down: a root, and below it chains that are as long as the tree is deep.
func newTenants(n, depth int) (tenants []*v1alpha1.Tenant) {
	chains := (n - 1 + depth - 1) / depth
	for i := range n {
		tenant := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: tenantName(i)}}
		tenant.Spec.Owners = []v1alpha1.Owner{{Kind: v1alpha1.UserKind, Name: "of-" + tenant.Name}}
		if i > 0 {
			tenant.Spec.Parent = tenantName(max(0, i-chains))
		}
		tenants = append(tenants, tenant)
	}
	return tenants
}

// create creates the tenants and the peer's role bindings, and waits until all spaces are owned as the root is.
func (t *tenantTree) create(ctx context.Context) error {
	tenants := newTenants(t.size, treeDepth)
	err := t.each(func(i int) error { return t.host.Create(ctx, tenants[i]) })
	if err != nil {
		return fmt.Errorf("create tenants: %w", err)
	}
	err = t.each(func(i int) error {
		binding := &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: tenantName(i)}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: benchRoles}}
		_, err := t.plain.RbacV1().RoleBindings(metav1.NamespaceDefault).Create(ctx, binding, metav1.CreateOptions{})
		return err
	})
	if err != nil {
		return fmt.Errorf("create role bindings: %w", err)
	}
	_, err = t.change(ctx, firstOwner)
	return err
}

// each calls a function for each tenant, many at once.
func (t *tenantTree) each(f func(i int) error) error {
	var group errgroup.Group
	group.SetLimit(tenantWriters)
	for i := range t.size {
		group.Go(func() error { return f(i) })
	}
	return group.Wait()
}

// change gives the root another owner, and returns the seconds until a watch has reported the space of each tenant with that owner.
func (t *tenantTree) change(ctx context.Context, owner string) (float64, error) {
	ctx, cancel := context.WithTimeout(ctx, tenantsTime)
	defer cancel()
	spaces := &v1alpha1.SpaceList{}
	if err := t.host.List(ctx, spaces); err != nil {
		return 0, fmt.Errorf("list spaces: %w", err)
	}
	events, err := t.host.Watch(ctx, &v1alpha1.SpaceList{}, &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: spaces.ResourceVersion}})
	if err != nil {
		return 0, fmt.Errorf("watch spaces: %w", err)
	}
	defer events.Stop()
	begin := time.Now()
	patch := fmt.Appendf(nil, `{"spec":{"owners":[{"kind":"User","name":%q}]}}`, owner)
	root := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: tenantName(0)}}
	if err := t.host.Patch(ctx, root, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		return 0, fmt.Errorf("change the root's owner: %w", err)
	}
	reached := map[string]bool{}
	for len(reached) < t.size {
		event, open := <-events.ResultChan()
		if !open {
			return 0, fmt.Errorf("%s owns %d of %d spaces: %w", owner, len(reached), t.size, context.Cause(ctx))
		}
		if space, ok := event.Object.(*v1alpha1.Space); ok && event.Type != watch.Deleted && owns(space, owner) {
			reached[space.Name] = true
		}
	}
	return time.Since(begin).Seconds(), nil
}

func owns(space *v1alpha1.Space, name string) bool {
	return slices.ContainsFunc(space.Spec.Access.Owners, func(o v1alpha1.Owner) bool { return o.Name == name })
}

// awaitStatuses waits until the status of each tenant has an owner, too.
func (t *tenantTree) awaitStatuses(ctx context.Context, owner string) error {
	return wait.PollUntilContextTimeout(ctx, time.Second, tenantsTime, true, func(ctx context.Context) (bool, error) {
		tenants := &v1alpha1.TenantList{}
		if err := t.host.List(ctx, tenants); err != nil {
			return false, fmt.Errorf("list tenants: %w", err)
		}
		written := 0
		for i := range tenants.Items {
			if slices.ContainsFunc(tenants.Items[i].Status.Owners, func(o v1alpha1.OwnerStatus) bool { return o.Name == owner }) {
				written++
			}
		}
		return written >= t.size, nil
	})
}

// bind gives as many role bindings another subject, which is what a right costs where tenants are namespaces.
func (t *tenantTree) bind(ctx context.Context, owner string) (float64, error) {
	patch := fmt.Appendf(nil, `{"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":%q}]}`, owner)
	begin := time.Now()
	err := t.each(func(i int) error {
		_, err := t.plain.RbacV1().RoleBindings(metav1.NamespaceDefault).Patch(ctx, tenantName(i), "application/merge-patch+json", patch, metav1.PatchOptions{})
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("change role bindings: %w", err)
	}
	return time.Since(begin).Seconds(), nil
}

// cpuTimes are the seconds that processes have used.
type cpuTimes struct{ host, operator float64 }

func (t *tenantTree) cpu() cpuTimes {
	seconds := func(name string) float64 {
		stat, err := t.processes[name].Stat()
		if err != nil {
			return 0
		}
		return stat.CPUTime()
	}
	return cpuTimes{seconds(side.Host), seconds(side.Operator)}
}

func (c cpuTimes) until(later cpuTimes) string {
	return fmt.Sprintf("host %.3g s and operator %.3g s", later.host-c.host, later.operator-c.operator)
}

// quotaPodsTimes is how many times as many pods are created one by one as for other measures. Single pods take 9 to 40 ms. The difference of
// the medians of a thousand is known to 0.2 ms, and that of three thousand to 0.1 ms (by resampling).
const quotaPodsTimes = 3

// measureQuota takes what the ledger of a tenant's quota costs: pods through a space of a tenant, beside pods through a space without one.
func measureQuota(ctx context.Context, b *bench, s *sides) error {
	ways, err := s.quotaWays(ctx, "bench-quota")
	if err != nil {
		return err
	}
	single := *b
	single.pods *= quotaPodsTimes
	toHost, _, err := single.onePodAfterTheOther(ctx, ways, max(1, b.pods/10), false)
	if err != nil {
		ways.stop()
		return err
	}
	b.addTimes("quota_pod_to_host_ms", toHost, nil)
	more := report.Percentile(toHost.berth, 50) - report.Percentile(toHost.stock, 50)
	b.report.Add("quota_pod_to_host_more_ms", "ms", more, 0, report.AtMost(0.5))
	return b.measureBursts(ctx, s, ways, "quota_burst_pods_per_s", "", 1, burstRepeats*b.repeats, report.AtLeastShare(0.97))
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/client/hostapi"
)

// quotaFlag is a flag that sets the quota of resources.
type quotaFlag struct {
	name, usage string
	resources   []corev1.ResourceName
	amount      string
}

// quotaFlags are the flags that set the quota of a tenant.
type quotaFlags struct {
	short   []*quotaFlag
	general []string
}

func (q *quotaFlags) addTo(cmd *cobra.Command) {
	q.short = []*quotaFlag{
		{name: "cpu", usage: "CPU that all pods of the tenant, and of the tenants below, may request and be limited to together, such as 8", resources: []corev1.ResourceName{corev1.ResourceRequestsCPU, corev1.ResourceLimitsCPU}},
		{name: "memory", usage: "memory, as for --cpu, such as 16Gi", resources: []corev1.ResourceName{corev1.ResourceRequestsMemory, corev1.ResourceLimitsMemory}},
		{name: "pods", usage: "how many pods there may be, such as 100", resources: []corev1.ResourceName{corev1.ResourcePods}},
		{name: "storage", usage: "what all PersistentVolumeClaims may request together, such as 200Gi", resources: []corev1.ResourceName{corev1.ResourceRequestsStorage}},
	}
	for _, flag := range q.short {
		cmd.Flags().StringVar(&flag.amount, flag.name, "", flag.usage+" (default: that of the platform)")
		_ = cmd.RegisterFlagCompletionFunc(flag.name, cobra.NoFileCompletions)
	}
	cmd.Flags().StringArrayVar(&q.general, "quota", nil, "RESOURCE=AMOUNT of the quota, such as limits.cpu=8 or count/jobs.batch=50; repeat the flag for several")
	var names []string
	for _, name := range slices.Sorted(maps.Keys(v1alpha1.DefaultQuota())) {
		names = append(names, string(name)+"=")
	}
	_ = cmd.RegisterFlagCompletionFunc("quota", cobra.FixedCompletions(names, cobra.ShellCompDirectiveNoSpace|cobra.ShellCompDirectiveNoFileComp))
}

// quota returns the quota that the flags set; nil if they set none.
func (q *quotaFlags) quota(cmd *cobra.Command) (map[corev1.ResourceName]resource.Quantity, error) {
	quota, setBy := map[corev1.ResourceName]resource.Quantity{}, map[corev1.ResourceName]string{}
	set := func(flag, text string, names ...corev1.ResourceName) error {
		amount, err := resource.ParseQuantity(text)
		if err != nil || amount.Sign() < 0 {
			return fmt.Errorf("%s: must be a quantity that is not negative, such as 500m, 8, or 16Gi", flag)
		}
		for _, name := range names {
			if before, twice := setBy[name]; twice {
				return fmt.Errorf("%s: %s sets %s, too; leave one of them out", flag, before, name)
			}
			quota[name], setBy[name] = amount, flag
		}
		return nil
	}
	for _, flag := range q.short {
		if !cmd.Flags().Changed(flag.name) {
			continue
		}
		if err := set("--"+flag.name+"="+flag.amount, flag.amount, flag.resources...); err != nil {
			return nil, err
		}
	}
	for _, text := range q.general {
		name, amount, found := strings.Cut(text, "=")
		if !found || name == "" {
			return nil, fmt.Errorf("--quota=%s: must be RESOURCE=AMOUNT, such as limits.cpu=8 or count/jobs.batch=50", text)
		}
		if err := set("--quota="+text, amount, corev1.ResourceName(name)); err != nil {
			return nil, err
		}
	}
	if len(quota) == 0 {
		return nil, nil
	}
	return quota, nil
}

// checkParent returns an error if the quota of a tenant is more than that of its parent, which would limit it. It can't know if the parent
// is not there yet, or if the user may not read it.
func checkParent(ctx context.Context, host *hostapi.Client, tenant *v1alpha1.Tenant) error {
	name := tenant.Spec.Parent
	if name == "" || name == v1alpha1.SystemTenant || len(tenant.Spec.Quota) == 0 {
		return nil
	}
	above := &v1alpha1.Tenant{}
	err := host.Get(ctx, client.ObjectKey{Name: name}, above)
	switch {
	case apierrors.IsNotFound(err), apierrors.IsForbidden(err):
		return nil
	case err != nil:
		return err
	}
	var beyond []string
	for _, resource := range slices.Sorted(maps.Keys(tenant.Spec.Quota)) {
		amount := tenant.Spec.Quota[resource]
		if most, limited := above.Status.Usage.Hard[resource]; limited && amount.Cmp(most) > 0 {
			beyond = append(beyond, fmt.Sprintf("%s of %s is more than its %s", resource, amount.String(), most.String()))
		}
	}
	if len(beyond) > 0 {
		return fmt.Errorf("--parent=%s: the quota of a tenant can't be more than that of the tenant above: %s; lower the quota, or raise spec.quota of tenant %s first", name, strings.Join(beyond, ", "), name)
	}
	return nil
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/client/hostapi"
	"github.com/berth-dev/berth/client/progress"
	"github.com/berth-dev/berth/cmd/berth/flags"
)

func newCreate(host *flags.Host) *cobra.Command {
	var o createOptions
	var change flags.Change
	var wait flags.Wait
	cmd := &cobra.Command{
		Use:   "create NAME",
		Short: "Create a tenant",
		Long: `Create a tenant. The operator creates the space of the same name.

A quota is what all spaces of the tenant, and of all tenants below it, may use together.
Resources for which you set none have the default of the platform. A quota can't be more
than that of the parent: 'berth tenant create' then prints the limits of both.

Use 'kubectl edit tenant NAME' for the fields that have no flag here. To get a manifest,
use --dry-run=client -o yaml.`,
		Example: `  berth tenant create acme --wait
  berth tenant create acme-dev --parent acme --private --owner User:alice --owner Group:oidc:devs
  berth tenant create solar --namespace-quota 10 --cpu 8 --memory 16Gi --pods 100 --storage 200Gi
  berth tenant create solar --quota requests.cpu=4 --quota limits.cpu=16 --quota count/jobs.batch=50
  berth tenant create acme --node-selector pool=acme --toleration tenant=acme:NoSchedule
  berth tenant create solar --dry-run=client -o yaml > solar.yaml`,
		Args:              cobra.ExactArgs(1),
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(cmd *cobra.Command, args []string) error {
			tenant, err := o.tenant(cmd, args[0])
			if err != nil {
				return err
			}
			if err := change.Check(); err != nil {
				return err
			}
			if !change.Sends() { // needs no host
				return change.Print(cmd, tenant, "Tenant", progress.Name(tenant), "created")
			}
			return host.Run(func(cmd *cobra.Command, _ []string, host *hostapi.Client) error {
				if err := checkParent(cmd.Context(), host, tenant); err != nil {
					return err
				}
				if err := change.Of(host).Create(cmd.Context(), tenant); err != nil {
					return err
				}
				if wait.Wait && !change.Dry() {
					ctx, cancel := wait.Context(cmd.Context(), "the tenant is created, and becomes ready later; see 'berth tenant get "+tenant.Name+"'")
					defer cancel()
					if err := progress.Ready(ctx, host, tenant, cmd.ErrOrStderr()); err != nil {
						return err
					}
				}
				return change.Print(cmd, tenant, "Tenant", progress.Name(tenant), "created")
			})(cmd, args)
		},
	}
	cmd.Flags().StringVar(&o.parent, "parent", "", "tenant above this one in the tree; it can't be changed later")
	cmd.Flags().BoolVar(&o.private, "private", false, "keep the owners of the tenants above from this tenant and those below it")
	cmd.Flags().StringArrayVar(&o.owners, "owner", nil, "KIND:NAME of an owner, with KIND User, Group, ServiceAccount (of the space), or HostServiceAccount; repeat the flag for several")
	cmd.Flags().Int32Var(&o.namespaces, "namespace-quota", 0, "how many namespaces the tenant's spaces may have together (default: no limit)")
	o.quota.addTo(cmd)
	cmd.Flags().StringToStringVar(&o.nodeSelector, "node-selector", nil, "KEY=VALUE of a label of the host's nodes that the tenant's pods run on; repeat the flag for several (default: all nodes)")
	cmd.Flags().StringArrayVar(&o.tolerations, "toleration", nil, "KEY=VALUE:EFFECT or KEY:EFFECT of a taint of these nodes, as 'kubectl taint' has it; repeat the flag for several")
	wait.AddTo(cmd, false, "the tenant is ready")
	change.AddTo(cmd, true)
	_ = cmd.RegisterFlagCompletionFunc("parent", host.Names("tenants", 0))
	_ = cmd.RegisterFlagCompletionFunc("owner", cobra.FixedCompletions([]string{"User:", "Group:", "ServiceAccount:", "HostServiceAccount:"}, cobra.ShellCompDirectiveNoSpace|cobra.ShellCompDirectiveNoFileComp))
	return cmd
}

// createOptions are the flags that set fields.
type createOptions struct {
	parent     string
	private    bool
	owners     []string
	namespaces int32
	quota      quotaFlags

	nodeSelector map[string]string
	tolerations  []string
}

func (o *createOptions) tenant(cmd *cobra.Command, name string) (*v1alpha1.Tenant, error) {
	tenant := &v1alpha1.Tenant{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion.String(), Kind: "Tenant"},
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.TenantSpec{Parent: o.parent, Nodes: v1alpha1.Nodes{Selector: o.nodeSelector}},
	}
	for _, text := range o.tolerations {
		toleration, err := parseToleration(text)
		if err != nil {
			return nil, err
		}
		tenant.Spec.Nodes.Tolerations = append(tenant.Spec.Nodes.Tolerations, toleration)
	}
	set := cmd.Flags().Changed
	if set("private") {
		tenant.Spec.Private = &o.private
	}
	if set("namespace-quota") {
		tenant.Spec.Namespaces.Quota = &o.namespaces
	}
	for _, text := range o.owners {
		owner, err := parseOwner(text)
		if err != nil {
			return nil, err
		}
		tenant.Spec.Owners = append(tenant.Spec.Owners, owner)
	}
	var err error
	tenant.Spec.Quota, err = o.quota.quota(cmd)
	return tenant, err
}

// parseToleration returns the toleration of a taint, KEY=VALUE:EFFECT or KEY:EFFECT.
func parseToleration(text string) (v1alpha1.Toleration, error) {
	taint, effect, _ := strings.Cut(text, ":")
	key, value, _ := strings.Cut(taint, "=")
	toleration := v1alpha1.Toleration{Key: key, Operator: corev1.TolerationOpEqual, Value: value, Effect: corev1.TaintEffect(effect)}
	switch toleration.Effect {
	case corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute:
		if key != "" {
			return toleration, nil
		}
	}
	return toleration, fmt.Errorf("--toleration=%s: must be KEY=VALUE:EFFECT or KEY:EFFECT, with EFFECT NoSchedule, PreferNoSchedule, or NoExecute", text)
}

// serviceAccountPrefix begins the names by which ServiceAccounts authenticate.
const serviceAccountPrefix = "system:serviceaccount:"

// parseOwner returns the owner KIND:NAME. A name may have colons. That of a ServiceAccount may be NAMESPACE:NAME.
func parseOwner(text string) (owner v1alpha1.Owner, err error) {
	given, name, found := strings.Cut(text, ":")
	for _, kind := range []v1alpha1.SubjectKind{v1alpha1.UserKind, v1alpha1.GroupKind, v1alpha1.ServiceAccountKind, v1alpha1.HostServiceAccountKind} {
		if !found || name == "" || !strings.EqualFold(given, string(kind)) {
			continue
		}
		if (kind == v1alpha1.ServiceAccountKind || kind == v1alpha1.HostServiceAccountKind) && !strings.HasPrefix(name, serviceAccountPrefix) {
			name = serviceAccountPrefix + name
		}
		return v1alpha1.Owner{Kind: kind, Name: name}, nil
	}
	return owner, fmt.Errorf("--owner=%s: must be User:NAME, Group:NAME, ServiceAccount:NAMESPACE:NAME, or HostServiceAccount:NAMESPACE:NAME", text)
}

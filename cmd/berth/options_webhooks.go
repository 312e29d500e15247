// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"time"

	"github.com/spf13/cobra"
)

// addWebhookFlags declares the flags of webhooks that know users or what they may do, which have the names and defaults that kube-apiserver's have, and of
// their default tenant.
func (o *runOptions) addWebhookFlags(cmd *cobra.Command) {
	const identity = "alpha.kubernetes.io/identity/" // what k8s-keystone-auth sends
	review := &o.Clients.Webhook
	cmd.Flags().StringVar(&review.ConfigFile, "authentication-token-webhook-config-file", "", "kubeconfig of a webhook that reviews tokens, such as k8s-keystone-auth for OpenStack Keystone. Berth doesn't send it tokens that name an issuer (default: no webhook)")
	cmd.Flags().DurationVar(&review.CacheTTL, "authentication-token-webhook-cache-ttl", 2*time.Minute, "how long a token that the webhook has accepted isn't reviewed again")
	cmd.Flags().StringVar(&review.Version, "authentication-token-webhook-version", "v1beta1", "version of the TokenReview objects for the webhook: v1 or v1beta1")
	cmd.Flags().StringVar(&review.TenantExtra, "authentication-token-webhook-tenant-extra", identity+"user/domain/name", "extra field of the reply with the user's tenant")
	cmd.Flags().StringVar(&review.RolesExtra, "authentication-token-webhook-roles-extra", identity+"roles", "extra field of the reply with the user's roles, which become groups")
	cmd.Flags().StringVar(&review.ProjectExtra, "authentication-token-webhook-project-extra", identity+"project/id", "extra field of the reply with the project of the roles, each of which is also the group PROJECT:ROLE")
	authorize := &o.Authorizer
	cmd.Flags().StringVar(&authorize.File, "authorization-webhook-config-file", "", "kubeconfig of a webhook that is asked whether a request in a space is allowed, if RBAC doesn't allow it (default: no webhook)")
	cmd.Flags().StringVar(&authorize.Version, "authorization-webhook-version", "v1beta1", "version of the SubjectAccessReview objects for the webhook: v1 or v1beta1")
	cmd.Flags().DurationVar(&authorize.Allowed, "authorization-webhook-cache-authorized-ttl", 5*time.Minute, "how long what the webhook has allowed isn't asked again")
	cmd.Flags().DurationVar(&authorize.Unallowed, "authorization-webhook-cache-unauthorized-ttl", 30*time.Second, "how long what the webhook has not allowed isn't asked again")
	cmd.Flags().StringVar(&o.Clients.DefaultTenant, "default-tenant", "", "tenant of users whose credential names none; the operator creates it if it doesn't exist (default: they are refused)")
	for _, flag := range []string{"authentication-token-webhook-cache-ttl", "authentication-token-webhook-tenant-extra", "authentication-token-webhook-roles-extra", "authentication-token-webhook-project-extra", "authorization-webhook-cache-authorized-ttl", "authorization-webhook-cache-unauthorized-ttl", "default-tenant"} {
		_ = cmd.RegisterFlagCompletionFunc(flag, cobra.NoFileCompletions)
	}
	versions := cobra.FixedCompletions([]string{"v1", "v1beta1"}, cobra.ShellCompDirectiveNoFileComp)
	_ = cmd.RegisterFlagCompletionFunc("authentication-token-webhook-version", versions)
	_ = cmd.RegisterFlagCompletionFunc("authorization-webhook-version", versions)
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/platform/kubeconfig"
	"github.com/berth-dev/berth/platform/manager"
)

// ownerFlags name the owner of a space that a kubeconfig is issued for.
type ownerFlags struct{ name, kind string }

func (o *ownerFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&o.name, "owner", "", "issue a kubeconfig for this owner of the space")
	cmd.Flags().StringVar(&o.kind, "owner-kind", string(v1alpha1.UserKind), "kind of the owner: User or Group")
	cmd.MarkFlagsMutuallyExclusive("owner", "user")
	cmd.MarkFlagsMutuallyExclusive("owner", "group")
	_ = cmd.RegisterFlagCompletionFunc("owner-kind", cobra.FixedCompletions([]string{string(v1alpha1.UserKind), string(v1alpha1.GroupKind)}, cobra.ShellCompDirectiveNoFileComp))
}

// subject returns the owner, who must be one now; nil if the flags name none.
func (o *ownerFlags) subject(flags *pflag.FlagSet, dataDir, space string) (*v1alpha1.Subject, error) {
	switch {
	case !flags.Changed("owner") && flags.Changed("owner-kind"):
		return nil, errors.New("--owner-kind needs --owner")
	case !flags.Changed("owner"):
		return nil, nil
	}
	owner := v1alpha1.Subject{Kind: v1alpha1.SubjectKind(o.kind), Name: o.name}
	if _, _, err := kubeconfig.OwnerUser(owner); err != nil {
		return nil, err
	}
	return &owner, manager.CheckOwner(dataDir, space, owner)
}

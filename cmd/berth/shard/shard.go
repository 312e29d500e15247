// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package shard has the commands for shards: flags and printing. They use the API of the host with the rights of the caller.
package shard

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/client/hostapi"
	"github.com/berth-dev/berth/cmd/berth/flags"
)

// New returns the command for shards, with those below it.
func New() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "shard",
		Aliases: []string{"shards"},
		Short:   "List, cordon, and drain the shards of platforms",
		Long: `List, cordon, and drain shards. A shard is a pod of a platform that has several, with a
part of the spaces. To move a single space, use 'berth space move'.

The commands use the API of the host cluster with your kubeconfig and your rights, as
kubectl does. They work from any machine, and the host's audit log contains what they
do.`,
	}
	host := &flags.Host{}
	host.AddTo(cmd)
	one := &commands{host: host}
	cmd.PersistentFlags().StringVarP(&one.namespace, "namespace", "n", "", "host namespace of the platform (default: all are searched)")
	_ = cmd.RegisterFlagCompletionFunc("namespace", host.Namespaces())
	cmd.AddCommand(one.newGet(), one.newCordon(), one.newUncordon(), one.newDrain())
	return cmd
}

// commands are those for shards.
type commands struct {
	host      *flags.Host
	namespace string
}

// find reads the shard of a name.
func (c *commands) find(ctx context.Context, host *hostapi.Client, name string) (*v1alpha1.Shard, error) {
	var list v1alpha1.ShardList
	if err := host.List(ctx, &list, client.InNamespace(c.namespace), client.MatchingFields{"metadata.name": name}); err != nil {
		return nil, err
	}
	switch len(list.Items) {
	case 0:
		return nil, apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("shards").GroupResource(), name)
	case 1:
		return &list.Items[0], nil
	}
	var namespaces []string
	for i := range list.Items {
		namespaces = append(namespaces, list.Items[i].Namespace)
	}
	return nil, fmt.Errorf("there are shards %s in the namespaces %s; set --namespace", name, strings.Join(namespaces, ", "))
}

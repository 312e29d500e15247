// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package flags

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/client/hostapi"
	"github.com/berth-dev/berth/platform/datadir"
)

// completionTimeout is how long the host may take to complete a name. A user waits for it at the prompt.
const completionTimeout = 2 * time.Second

// completionMost is how many names are completed.
const completionMost = "500"

// lookUp returns names for a completion.
type lookUp func(ctx context.Context, host *hostapi.Client, args []string) []string

func (h *Host) complete(names lookUp) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		host, err := h.Open(cmd)
		if err == nil {
			host, err = host.WithTimeout(completionTimeout)
		}
		if err != nil {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), completionTimeout)
		defer cancel()
		return names(ctx, host, args), cobra.ShellCompDirectiveNoFileComp
	}
}

// Names completes the names of tenants, spaces, and other objects of Berth that are not among the arguments yet. With most above
// zero, only so many arguments are completed. If the host doesn't answer, the spaces of this machine are completed.
func (h *Host) Names(resource string, most int) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
		if most > 0 && len(args) >= most {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		names, _ := h.complete(func(ctx context.Context, host *hostapi.Client, _ []string) []string {
			return namesOf(ctx, host, resource)
		})(cmd, args, word)
		if len(names) == 0 && resource == "spaces" {
			names, _ = datadir.Kubeconfigs(h.DataDir)
		}
		names = slices.DeleteFunc(names, func(name string) bool { return slices.Contains(args, name) || name == datadir.HostName })
		return names, cobra.ShellCompDirectiveNoFileComp
	}
}

func namesOf(ctx context.Context, host *hostapi.Client, resource string) (names []string) {
	answer, err := host.Berth.Get().Resource(resource).Param("limit", completionMost).
		SetHeader("Accept", "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1").DoRaw(ctx)
	var list metav1.PartialObjectMetadataList
	if err != nil || json.Unmarshal(answer, &list) != nil {
		return nil
	}
	for _, object := range list.Items {
		names = append(names, object.Name)
	}
	return names
}

// Namespaces completes the names of the host's namespaces.
func (h *Host) Namespaces() cobra.CompletionFunc {
	return h.complete(func(ctx context.Context, host *hostapi.Client, _ []string) (names []string) {
		var list corev1.NamespaceList
		if host.List(ctx, &list) != nil {
			return nil
		}
		for _, namespace := range list.Items {
			names = append(names, namespace.Name)
		}
		return names
	})
}

// Owners completes the owners of the space that the first argument names.
func (h *Host) Owners() cobra.CompletionFunc {
	return h.complete(func(ctx context.Context, host *hostapi.Client, args []string) (names []string) {
		var space v1alpha1.Space
		if len(args) == 0 || host.Get(ctx, client.ObjectKey{Name: args[0]}, &space) != nil {
			return nil
		}
		for _, owner := range space.Spec.Access.Owners {
			names = append(names, owner.Name)
		}
		return names
	})
}

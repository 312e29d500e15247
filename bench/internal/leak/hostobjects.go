// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package leak

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/translate"
)

// HostObjects names all objects on the host that belong to a space, of every kind that can be listed.
func HostObjects(ctx context.Context, host *rest.Config) (names []string, err error) {
	kinds, err := discovery.NewDiscoveryClientForConfig(host)
	if err != nil {
		return nil, fmt.Errorf("make host client: %w", err)
	}
	objects, err := metadata.NewForConfig(host)
	if err != nil {
		return nil, fmt.Errorf("make host client: %w", err)
	}
	lists, err := kinds.ServerPreferredResources()
	if err != nil {
		return nil, fmt.Errorf("find the host's kinds: %w", err)
	}
	for _, list := range discovery.FilteredBy(discovery.SupportsAllVerbs{Verbs: []string{"list"}}, lists) {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, fmt.Errorf("find the host's kinds: %w", err)
		}
		for _, kind := range list.APIResources {
			found, err := objects.Resource(version.WithResource(kind.Name)).List(ctx, metav1.ListOptions{LabelSelector: translate.LabelSpace})
			if apierrors.IsMethodNotSupported(err) || apierrors.IsNotFound(err) {
				continue
			}
			if err != nil {
				return nil, fmt.Errorf("list the host's %s: %w", kind.Name, err)
			}
			for _, o := range found.Items {
				names = append(names, kind.Name+" "+o.Namespace+"/"+o.Name)
			}
		}
	}
	slices.Sort(names)
	return names, nil
}

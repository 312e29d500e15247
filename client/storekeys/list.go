// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package storekeys

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
)

// pageSize is how many objects one request reads. Only their metadata is read.
const pageSize = 500

// Print prints the keys of the objects of a space, a line each, ordered by resource. With resources, which are plurals or
// PLURAL.GROUP, only those are listed.
func Print(ctx context.Context, out io.Writer, space *rest.Config, tenant string, resources []string) error {
	plain := rest.CopyConfig(space)
	plain.ContentConfig = rest.ContentConfig{}
	discoverer, err := discovery.NewDiscoveryClientForConfig(plain)
	if err != nil {
		return fmt.Errorf("list the resources of the space: %w", err)
	}
	all, incomplete := discoverer.ServerPreferredResources()
	if len(all) == 0 && incomplete != nil {
		return fmt.Errorf("list the resources of the space: %w", incomplete)
	}
	chosen, err := choose(all, resources)
	if err != nil {
		return err
	}
	client, err := metadata.NewForConfig(plain)
	if err != nil {
		return fmt.Errorf("list the objects of the space: %w", err)
	}
	failed := []error{incomplete} // an API service that doesn't answer hides its resources, which are no reason to stop
	for _, resource := range chosen {
		failed = append(failed, printResource(ctx, out, client.Resource(resource), resource, tenant))
		if ctx.Err() != nil {
			return ctx.Err()
		}
	}
	return errors.Join(failed...)
}

func printResource(ctx context.Context, out io.Writer, client metadata.ResourceInterface, resource schema.GroupVersionResource, tenant string) error {
	for next := ""; ; {
		list, err := client.List(ctx, metav1.ListOptions{Limit: pageSize, Continue: next})
		if err != nil {
			return fmt.Errorf("list %s: %w", resource.GroupResource(), err)
		}
		for i := range list.Items {
			object := &list.Items[i]
			if _, err := fmt.Fprintln(out, Key(resource.Group, resource.Resource, tenant, object.Namespace, object.Name)); err != nil {
				return err
			}
		}
		if next = list.Continue; next == "" {
			return nil
		}
	}
}

// choose returns the resources that are stored and can be listed, or those of them that are named.
func choose(all []*metav1.APIResourceList, named []string) ([]schema.GroupVersionResource, error) {
	var chosen []schema.GroupVersionResource
	used := map[string]bool{}
	for _, list := range all {
		version, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			return nil, fmt.Errorf("list the resources of the space: %w", err)
		}
		for _, r := range list.APIResources {
			if strings.Contains(r.Name, "/") || !slices.Contains(r.Verbs, "list") || computed(version.Group, r.Name) {
				continue
			}
			resource := version.WithResource(r.Name)
			names := []string{r.Name, resource.GroupResource().String()}
			if at := slices.IndexFunc(named, func(name string) bool { return slices.Contains(names, name) }); at >= 0 {
				used[named[at]] = true
			} else if len(named) > 0 {
				continue
			}
			chosen = append(chosen, resource)
		}
	}
	for _, name := range named {
		if !used[name] {
			return nil, fmt.Errorf("the space has no resource %q that is stored; see 'kubectl api-resources' for the plural names", name)
		}
	}
	slices.SortFunc(chosen, func(a, b schema.GroupVersionResource) int {
		return strings.Compare(Key(a.Group, a.Resource, "", "", ""), Key(b.Group, b.Resource, "", "", ""))
	})
	return chosen, nil
}

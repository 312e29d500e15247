// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package services

import (
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/syncer/resources"
)

// unclaimed rejects the host names of v that are in use outside of its space, or not in its domains.
func unclaimed[T client.Object](k *engine.Resource[T], v T, path *field.Path) (errs field.ErrorList) {
	own := hostcache.OwnNames{}
	if host, ok := hostcache.Get[T](k.Host, k.Name, k.Space.HostNamespace(), k.Space.HostName(v.GetNamespace(), v.GetName(), k.NameLimit)); ok {
		own = hostcache.NamesOf(host)
	}
	covering := k.Host.Wildcards()
	for _, name := range resources.HostsOf(v) {
		if !inDomains(name, k.Space.Settings.Domains) {
			errs = append(errs, field.Forbidden(path.Key(name), fmt.Sprintf("the host name %s is outside of the domains of this space; use one in %s",
				name, strings.Join(k.Space.Settings.Domains, ", "))))
		} else if k.Host.Claimed(name, covering, k.Space, own) {
			errs = append(errs, field.Forbidden(path.Key(name), fmt.Sprintf("the host name %s is in use outside of this space; choose another", name)))
		}
	}
	return errs
}

// claimNames counts v's host names, and returns an error if the space then has too many. The error does not remove what
// v already has on the host.
func claimNames[T client.Object](k *engine.Resource[T], v T, path *field.Path) error {
	o := hostcache.Object{Resource: k.Name, NamespacedName: types.NamespacedName{Namespace: k.Space.HostNamespace(), Name: k.Space.HostName(v.GetNamespace(), v.GetName(), k.NameLimit)}}
	if _, err := k.HostNames.Take(o, int64(len(resources.HostsOf(v)))); err != nil {
		k.HostNames.Keep(engine.Key{Resource: k.Name, NamespacedName: client.ObjectKeyFromObject(v)})
		return fmt.Errorf("%s: %w", path, err)
	}
	return nil
}

// inDomains reports whether a space with these domains may use a host name.
func inDomains(name string, domains []string) bool {
	return name == "" || len(domains) == 0 || slices.ContainsFunc(domains, func(domain string) bool {
		return name == domain || strings.HasSuffix(name, "."+domain)
	})
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"net/http"
	"slices"
	"strings"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/discovery"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	genericapiserver "k8s.io/apiserver/pkg/server"
)

const (
	legacyPrefix = genericapiserver.DefaultLegacyAPIPrefix
	groupPrefix  = genericapiserver.APIGroupPrefix
)

// Install has the space's server s, of the built-in APIs, tell discovery of
// them. addresses are what it tells clients of old; offers are the groups that
// not all spaces have. The result serves the APIs and all that s serves; the
// next server of the chain delegates to it.
func (a *API) Install(s *genericapiserver.GenericAPIServer, addresses discovery.Addresses, offers Offers) genericapiserver.DelegationTarget {
	t := target{s, a, offers}
	for _, g := range a.discovery.groups {
		if t.offers.group(g.Name) {
			s.DiscoveryGroupManager.AddGroup(g)
		}
	}
	for _, v := range a.discovery.versions {
		if t.offers.group(v.group) {
			s.AggregatedDiscoveryGroupManager.AddGroupVersion(v.group, v.version)
		}
	}
	legacy := discovery.NewLegacyRootAPIHandler(addresses, s.Serializer, legacyPrefix)
	manager := a.server.AggregatedLegacyDiscoveryGroupManager
	if offers.Tenant {
		manager = a.tenantCore.aggregated
	}
	s.Handler.GoRestfulContainer.Add(
		aggregated.WrapAggregatedDiscoveryToHandler(legacy, manager, manager).GenerateWebService(legacyPrefix, metav1.APIVersions{}))
	return t
}

// target is a space's server with the shared handlers.
type target struct {
	*genericapiserver.GenericAPIServer
	api    *API
	offers Offers
}

// Offers are the APIs that only some spaces have.
type Offers struct {
	// Usage says that the space knows what its pods use, and TenantQuota that its tenant has a quota.
	Usage, TenantQuota bool
	// Tenant says that it is a tenant's: it can give users of other tenants access, and lacks what a tenant can never use.
	Tenant bool
}

func (o Offers) group(group string) bool {
	return (o.Usage || group != usageGroup) && (o.TenantQuota || group != quotaGroup) && (o.Tenant || group != accessGroup)
}

func (o Offers) path(path string) bool {
	return (o.Usage || !isOf(usageGroup, path)) && (o.TenantQuota || !isOf(quotaGroup, path)) && (o.Tenant || !isOf(accessGroup, path))
}

// isOf tells whether a path is of an API group.
func isOf(group, path string) bool {
	rest, ok := strings.CutPrefix(path, groupPrefix+"/"+group)
	return ok && (rest == "" || rest[0] == '/')
}

// ListedPaths are those that upstream's server would list, which is also how the
// aggregator knows which APIs there are.
func (t target) ListedPaths() []string {
	paths := append(t.GenericAPIServer.ListedPaths(), t.api.paths()...)
	paths = slices.DeleteFunc(paths, func(path string) bool { return !t.offers.path(path) })
	slices.Sort(paths)
	return slices.Compact(paths)
}

func (t target) UnprotectedHandler() http.Handler {
	next, builtIn := t.GenericAPIServer.UnprotectedHandler(), http.Handler(t.api)
	if t.offers.Tenant {
		builtIn = t.api.tenantCore.serve(builtIn)
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if t.api.serves(r.URL.Path) && t.offers.path(r.URL.Path) {
			builtIn.ServeHTTP(w, r)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// paths are those of groups and versions.
func (a *API) paths() []string {
	var paths []string
	for _, ws := range a.server.Handler.GoRestfulContainer.RegisteredWebServices() {
		paths = append(paths, ws.RootPath())
	}
	return paths
}

// serves tells whether a path is of a built-in group. Those of a version that
// the group does not have are, too: upstream looks no further.
func (a *API) serves(path string) bool {
	if rest, ok := strings.CutPrefix(path, groupPrefix+"/"); ok {
		group, _, _ := strings.Cut(rest, "/")
		return a.discovery.has(group)
	}
	rest, ok := strings.CutPrefix(path, legacyPrefix+"/v1")
	return ok && (rest == "" || rest[0] == '/')
}

// recorder takes down what upstream's installation of the APIs tells discovery,
// so that each server can be told.
type recorder struct {
	aggregated.ResourceManager // nothing else is asked of it

	groups   []metav1.APIGroup
	versions []groupVersion
}

type groupVersion struct {
	group   string
	version apidiscoveryv2.APIVersionDiscovery
}

func (r *recorder) has(group string) bool {
	return slices.ContainsFunc(r.groups, func(g metav1.APIGroup) bool { return g.Name == group })
}

func (r *recorder) WithSource(aggregated.Source) aggregated.ResourceManager { return r }

func (r *recorder) AddGroupVersion(group string, version apidiscoveryv2.APIVersionDiscovery) {
	r.versions = append(r.versions, groupVersion{group, version})
}

// groupRecorder takes down the groups of discovery that is not aggregated.
type groupRecorder struct {
	discovery.GroupManager
	recorder *recorder
}

func (g groupRecorder) AddGroup(group metav1.APIGroup) {
	g.recorder.groups = append(g.recorder.groups, group)
}

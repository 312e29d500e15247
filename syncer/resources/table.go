// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"slices"
	"sync"
)

// Direction says which side an object comes from.
type Direction string

// The directions.
const (
	ToHost   Direction = "to the host"
	FromHost Direction = "from the host"
	// InSpace is what stays there: only what is made of it comes to the host.
	InSpace Direction = "in the space"
)

// Values of sync options. Where Selector is among a resource's values, any label
// selector is one, too.
const (
	On  = "on"
	Off = "off"
	// OffAndDeletePods is Off for Pods. It says what that does: a slip must not
	// terminate the pods of all spaces.
	OffAndDeletePods = "off-and-delete-pods"
	All              = "all"
	Used             = "used"
	Selector         = "SELECTOR"
	// VirtualNodes are objects that tell nothing of the host's but that they are there.
	VirtualNodes = "standins"
	// Translated are objects that are worked on in the space, with what they say of
	// nodes put into the host's words.
	Translated = "translated"
	// Bound is a priority, the highest that tenants may give their pods on the
	// host; after Preempting, they may put other spaces' pods out with it.
	Bound           = "PRIORITY"
	PreemptingBound = Preempting + Bound
	// Provisioners are names of provisioners, with + between them.
	Provisioners = "PROVISIONER+..."
)

// Preempting begins the values of PreemptingBound.
const Preempting = "preempting:"

// ImportSelector is the label selector of the host objects that spaces import where
// the admin has to say so.
const ImportSelector = "berth.dev/show=true"

// The resources, by the names of their sync options.
const (
	Pods            = "pods"
	Nodes           = "nodes"
	DaemonSets      = "daemonsets"
	Services        = "services"
	EndpointSlices  = "endpointslices"
	ConfigMaps      = "configmaps"
	Secrets         = "secrets"
	Claims          = "persistentvolumeclaims"
	Volumes         = "persistentvolumes"
	Ingresses       = "ingresses"
	NetworkPolicies = "networkpolicies"
	Budgets         = "poddisruptionbudgets"
	ServiceAccounts = "serviceaccounts"
	Events          = "events"
	StorageClasses  = "storageclasses"
	IngressClasses  = "ingressclasses"
	RuntimeClasses  = "runtimeclasses"
	PriorityClasses = "priorityclasses"

	ExportedPriorityClasses = "ownpriorityclasses"
	ExportedStorageClasses  = "ownstorageclasses"

	VolumeSnapshots = "volumesnapshots"
	SnapshotClasses = "volumesnapshotclasses"

	Gateways       = "gateways"
	HTTPRoutes     = "httproutes"
	GatewayClasses = "gatewayclasses"
)

// Resource is one row of the table.
type Resource struct {
	// Name of the sync option: the resource's, as in URLs, and for exported classes
	// that after "own".
	Name string
	Direction
	// Values that the option takes, the default first.
	Values []string
	// Status is what comes back, or is imported, of the host's object.
	Status string
	// Rewritten is what differs on the other side, and why where it is not plain.
	Rewritten string
}

// Default of the option.
func (r Resource) Default() string { return r.Values[0] }

// Lasts reports whether host objects stay when the resource is disabled: no option
// deletes data, nor what data or pods were made by.
func (r Resource) Lasts() bool {
	return slices.Contains([]string{Claims, VolumeSnapshots, ExportedPriorityClasses, ExportedStorageClasses}, r.Name)
}

// byName is the table, made once: it is asked several times for each object that is synced.
var byName = sync.OnceValue(func() map[string]Resource {
	all := map[string]Resource{}
	for _, r := range Table() {
		all[r.Name] = r
	}
	return all
})

// Table lists all resources, in the order of the documentation.
func Table() []Resource {
	return []Resource{
		{
			Pods, ToHost, []string{On, OffAndDeletePods}, "binding (the node's alias), status, removal",
			"names, references, environment, downward API, selectors, tokens; what reaches the host is refused",
		},
		{
			Nodes, FromHost, []string{Off, VirtualNodes, All}, "a virtual node for each node that an unfinished pod of the space runs on; `all`: for each that is for the space, too",
			"everything: its name is the pods' alias, all else is the same for all; `all`: except the labels that tenants may select by, and whether it takes new pods",
		},
		{
			DaemonSets, InSpace, []string{Off, Translated}, "",
			"only their pods: the name of the node in a pod's node affinity. `off`: they are refused; `translated` needs `nodes=all`",
		},
		{
			Services, ToHost, []string{On, Off}, "cluster IPs, node ports, load balancer's status",
			"selector, narrowed to the namespace's pods; no externalIPs, no load balancer class",
		},
		{
			EndpointSlices, ToHost, []string{On, Off}, "",
			"only those of services without a selector; the service's name; no node, no zone",
		},
		{
			ConfigMaps, ToHost, []string{Used, All, Off}, "",
			"`used`: only those that a pod refers to",
		},
		{
			Secrets, ToHost, []string{Used, All, Off}, "",
			"`used`: only those that a pod, an ingress or a gateway refers to; service account tokens become Opaque",
		},
		{
			Claims, ToHost, []string{On, Off}, "binding, size, conditions without messages",
			"data source; no volume name, no selector, no attributes class",
		},
		{
			Volumes, FromHost, []string{On, Off}, "size, modes, reclaim policy of a bound claim's volume",
			"name, driver and handle; no source, no node affinity",
		},
		{
			Ingresses, ToHost, []string{On, Off}, "load balancer's status",
			"names of services and TLS secrets; no annotations but those the admin allows, no default backend, no wildcard; " +
				"an imported class; a host name is its first claimant's",
		},
		{
			NetworkPolicies, ToHost, []string{On, Off}, "",
			"selectors, narrowed to the space; namespace selectors become the namespaces' names; " +
				"address blocks less what the space's isolation refuses",
		},
		{
			Budgets, ToHost, []string{Off, On}, "",
			"a number, at least one pod below those there are; each pod under one budget; pods that are not ready can always be evicted",
		},
		{
			ServiceAccounts, ToHost, []string{Off, On}, "",
			"only the name: no secrets, no token, no annotations. Pull secrets need it not, they come with the pod",
		},
		{
			Events, FromHost, []string{On, Off}, "those of kubelets, the scheduler and provisioners about the space's pods and claims",
			"names, nodes and addresses; known reasons only",
		},
		{
			StorageClasses, FromHost, []string{On, Off, Selector}, "name, policies, default",
			"provisioner; no parameters, mount options or topologies",
		},
		{
			IngressClasses, FromHost, []string{ImportSelector, On, Off, Selector}, "name, default",
			"controller; no parameters",
		},
		{
			RuntimeClasses, FromHost, []string{ImportSelector, On, Off, Selector}, "name, overhead",
			"handler; no node selector, no tolerations",
		},
		{
			PriorityClasses, FromHost, []string{ImportSelector, On, Off, Selector}, "name, value, preemption policy, description",
			"never the global default, never one whose name begins with system-",
		},
		{
			ExportedPriorityClasses, ToHost, []string{Off, Bound, PreemptingBound}, "",
			"those that the tenant made: name; value, no higher than the admin's; they preempt nobody but with `preempting:`, never the default",
		},
		{
			ExportedStorageClasses, ToHost, []string{Off, Provisioners}, "",
			"those that the tenant made: name; of these provisioners only, no parameter that names a secret, no mount options, " +
				"no topologies, not Retain, never the default",
		},
		{
			VolumeSnapshots, ToHost, []string{Off, On}, "readiness, size, time; that there is a content, and an error, without their names and words",
			"the claim's name; no content by name; an imported class",
		},
		{
			SnapshotClasses, FromHost, []string{Off, ImportSelector, On, Selector}, "name, deletion policy, default",
			"driver; no parameters",
		},
		{
			Gateways, ToHost, []string{Off, On}, "addresses; conditions without their words; attached routes",
			"names of TLS secrets; ports 80 and 443; host names as of ingresses; routes of the same namespace only; no addresses, no infrastructure, " +
				"no options; an imported class",
		},
		{
			HTTPRoutes, ToHost, []string{Off, On}, "conditions of its gateways without their words",
			"names of gateways and services, of the same namespace only; no expressions; host names as of ingresses; the core filters and mirrors. Needs `gateways=on`",
		},
		{
			GatewayClasses, FromHost, []string{Off, ImportSelector, On, Selector}, "name, conditions without their words, features",
			"controller; no parameters, no description",
		},
	}
}

// find returns the row of that name.
func find(name string) (Resource, bool) {
	k, ok := byName()[name]
	return k, ok
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package resources

import (
	"fmt"
	"sync"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	resourcev1 "k8s.io/api/resource/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/translate"
)

// Direction says on which side an object originates.
type Direction string

// The values of [Direction].
const (
	ToHost   Direction = "to the host"
	FromHost Direction = "from the host"
	// InSpace means that the objects stay in the space, and only objects derived from them are on the host.
	InSpace Direction = "in the space"
)

// These are values of sync options. If Selector is among a resource's values, any label selector is a value, too.
const (
	On  = "on"
	Off = "off"
	// OffAndDeletePods is Off for pods. It names its effect, because a mistake would terminate the pods of all spaces.
	OffAndDeletePods = "off-and-delete-pods"
	All              = "all"
	Used             = "used"
	Selector         = "SELECTOR"
	// VirtualNodes imports nodes as virtual nodes, which reveal only that they exist.
	VirtualNodes = "standins"
	// Translated means that the space's own objects are used, and that their references to nodes are translated for the
	// host.
	Translated = "translated"
	// Bound stands for a number, the highest priority that tenants may give their pods on the host. After Preempting,
	// these pods may also preempt others where the space has nodes of its own.
	Bound           = "PRIORITY"
	PreemptingBound = Preempting + Bound
	// Provisioners stands for names of provisioners, separated by +.
	Provisioners = "PROVISIONER+..."
	// Handles stands for [VolumeRule]s, separated by +.
	Handles = "DRIVER=HANDLES+..."
)

// Preempting is the prefix of the values of PreemptingBound.
const Preempting = "preempting:"

// ImportSelector is the default label selector of host objects that spaces import, for resources of which none are
// imported unless the admin labels them.
const ImportSelector = "berth.dev/show=true"

// These are the resources, by the names of their sync options.
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
	ExportedVolumes         = "ownpersistentvolumes"

	ResourceClaims = "resourceclaims"

	VolumeSnapshots = "volumesnapshots"
	SnapshotClasses = "volumesnapshotclasses"

	Gateways       = "gateways"
	HTTPRoutes     = "httproutes"
	GatewayClasses = "gatewayclasses"
)

// Resource describes one synced resource. Everything about the resource follows from it: the sync option, the watch on
// the host, the rights on the host, and the documentation.
type Resource struct {
	// Name is the name of the sync option: the plural name of the resource, as in URLs, with the prefix "own" for
	// exported classes and volumes.
	Name string
	Direction
	// Values are the values of the option, the default first.
	Values []string

	// Type is an empty object of the type on the host; nil if there is none. It must not be changed.
	Type client.Object
	// Plural is the plural name of the resource, as in URLs, if it differs from Name.
	Plural string
	// Extension means that the resource is defined by a CustomResourceDefinition, in the version of Type. If it is
	// enabled, spaces get the host's definition, so that both sides have the same schema.
	Extension bool
	// InCluster means that the objects are cluster-scoped.
	InCluster bool
	// Class means that the objects are classes of the host, some of which spaces import.
	Class bool
	// Exposure is set if the objects route requests from outside to services.
	Exposure *Exposure

	// Selector is the label selector of the host's objects that are watched; empty for all.
	Selector string
	// Read means that other resources read the host's objects, so that these are watched even if the resource is
	// disabled.
	Read bool
	// Quiet means that a change on the host does not wake a sleeping space.
	Quiet bool
	// Lasts means that the host objects stay when the resource is disabled. No option deletes data, nor the classes of
	// existing data and pods.
	Lasts bool

	// Status describes what is copied back, or imported, from the host's object.
	Status string
	// Rewritten describes what differs on the other side, and why if that is not obvious.
	Rewritten string
}

const (
	// ofSpaces selects objects with the label of a space.
	ofSpaces = translate.LabelSpace
	// ofTenants selects objects that also have the label of a namespace in the space, which isolation objects don't
	// have.
	ofTenants = translate.LabelSpace + "," + translate.LabelNamespace
	// ofExports selects objects that Berth made. The host's own volumes have the label of the space that uses them.
	ofExports = translate.LabelSpace + "," + translate.LabelManagedBy + "=" + translate.ManagedBy
)

// New returns a new object of the host's type.
func (r Resource) New() client.Object {
	o, _ := r.Type.DeepCopyObject().(client.Object)
	return o
}

// GVR returns the host's resource, in the version that is synced.
func (r Resource) GVR() schema.GroupVersionResource {
	plural := r.Plural
	if plural == "" {
		plural = r.Name
	}
	return r.GVK().GroupVersion().WithResource(plural)
}

// GVK returns the kind of the host's objects, in the version that is synced.
func (r Resource) GVK() schema.GroupVersionKind {
	kinds, _, err := Scheme().ObjectKinds(r.Type)
	if err != nil {
		panic(fmt.Sprintf("%s: %v", r.Name, err)) // can't happen: a test checks each resource
	}
	return kinds[0]
}

// Optional reports whether the resource is off by default.
func (r Resource) Optional() bool { return r.Default() == Off }

// Scheme contains all synced types, CustomResourceDefinition, and the types of Berth.
var Scheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme, snapshotv1.AddToScheme, gatewayv1.Install, v1alpha1.AddToScheme} {
		if err := add(s); err != nil {
			panic(fmt.Sprintf("two types of one name: %v", err))
		}
	}
	return s
})

// Default returns the default value of the option.
func (r Resource) Default() string { return r.Values[0] }

// Table returns all resources, in the order of the documentation.
func Table() []Resource {
	return []Resource{
		{
			Name: Pods, Direction: ToHost, Values: []string{On, OffAndDeletePods},
			Type: &corev1.Pod{}, Selector: ofSpaces, Read: true,
			Status:    "binding (the node's alias), status, removal",
			Rewritten: "names, references, environment, downward API, selectors, tokens; what reaches the host is refused",
		},
		{
			Name: Nodes, Direction: FromHost, Values: []string{Off, VirtualNodes, All},
			Type: &corev1.Node{}, InCluster: true, Quiet: true,
			Status:    "a virtual node for each node that an unfinished pod of the space runs on; `all`: for each that is for the space, too",
			Rewritten: "everything: its name is the pods' alias, all else is the same for all; `all`: except the labels that tenants may select by, and whether it takes new pods",
		},
		{
			Name: DaemonSets, Direction: InSpace, Values: []string{Off, Translated},
			Rewritten: "only their pods: the name of the node in a pod's node affinity. `off`: they are refused; `translated` needs `nodes=all`",
		},
		{
			Name: Services, Direction: ToHost, Values: []string{On, Off},
			Type: &corev1.Service{}, Selector: ofSpaces, Read: true,
			Status:    "cluster IPs, node ports, load balancer's status",
			Rewritten: "selector, narrowed to the namespace's pods; no externalIPs, no load balancer class",
		},
		{
			Name: EndpointSlices, Direction: ToHost, Values: []string{On, Off},
			Type: &discoveryv1.EndpointSlice{}, Selector: ofSpaces, Read: true,
			Rewritten: "only those of services without a selector; the service's name; no node, no zone",
		},
		{
			Name: ConfigMaps, Direction: ToHost, Values: []string{Used, All, Off},
			Type: &corev1.ConfigMap{}, Selector: ofSpaces,
			Rewritten: "`used`: only those that a pod refers to",
		},
		{
			Name: Secrets, Direction: ToHost, Values: []string{Used, All, Off},
			Type: &corev1.Secret{}, Selector: ofSpaces, Read: true,
			Rewritten: "`used`: only those that a pod, an ingress or a gateway refers to; service account tokens become Opaque",
		},
		{
			Name: Claims, Direction: ToHost, Values: []string{On, Off},
			Type: &corev1.PersistentVolumeClaim{}, Selector: ofSpaces, Read: true, Lasts: true,
			Status:    "binding, size, conditions without messages",
			Rewritten: "data source; no volume name, no selector, no attributes class",
		},
		{
			Name: Volumes, Direction: FromHost, Values: []string{On, Off},
			Type: &corev1.PersistentVolume{}, InCluster: true,
			Status:    "size, modes, reclaim policy of a bound claim's volume",
			Rewritten: "name, driver and handle; no source, no node affinity",
		},
		{
			Name: Ingresses, Direction: ToHost, Values: []string{On, Off},
			Type: &networkingv1.Ingress{}, Exposure: ingressExposure(),
			Status: "load balancer's status",
			Rewritten: "names of services and TLS secrets; no annotations but those the admin allows, no default backend, no wildcard; " +
				"an imported class; a host name is its first claimant's",
		},
		{
			Name: NetworkPolicies, Direction: ToHost, Values: []string{On, Off},
			Type: &networkingv1.NetworkPolicy{}, Selector: ofTenants,
			Rewritten: "selectors, narrowed to the space; namespace selectors become the namespaces' names; " +
				"address blocks less what the space's isolation refuses",
		},
		{
			Name: Budgets, Direction: ToHost, Values: []string{Off, On},
			Type: &policyv1.PodDisruptionBudget{}, Selector: ofSpaces, Quiet: true,
			Rewritten: "a number, at least one pod below those there are; each pod under one budget; pods that are not ready can always be evicted",
		},
		{
			Name: ServiceAccounts, Direction: ToHost, Values: []string{Off, On},
			Type: &corev1.ServiceAccount{}, Selector: ofTenants,
			Rewritten: "only the name: no secrets, no token, no annotations but those the admin allows. Pull secrets need it not, they come with the pod",
		},
		{
			Name: Events, Direction: FromHost, Values: []string{On, Off},
			Type: &corev1.Event{}, Quiet: true,
			Status:    "those of kubelets, the scheduler and provisioners about the space's pods and claims",
			Rewritten: "names, nodes and addresses; known reasons only",
		},
		{
			Name: StorageClasses, Direction: FromHost, Values: []string{On, Off, Selector},
			Type: &storagev1.StorageClass{}, InCluster: true, Class: true, Quiet: true,
			Status:    "name, policies, default",
			Rewritten: "provisioner; no parameters, mount options or topologies",
		},
		{
			Name: IngressClasses, Direction: FromHost, Values: []string{ImportSelector, On, Off, Selector},
			Type: &networkingv1.IngressClass{}, InCluster: true, Class: true, Quiet: true,
			Status:    "name, default",
			Rewritten: "controller; no parameters",
		},
		{
			Name: RuntimeClasses, Direction: FromHost, Values: []string{ImportSelector, On, Off, Selector},
			Type: &nodev1.RuntimeClass{}, InCluster: true, Class: true, Quiet: true,
			Status:    "name, overhead",
			Rewritten: "handler; no node selector, no tolerations",
		},
		{
			Name: PriorityClasses, Direction: FromHost, Values: []string{ImportSelector, On, Off, Selector},
			Type: &schedulingv1.PriorityClass{}, InCluster: true, Class: true, Quiet: true,
			Status:    "name, value, preemption policy, description",
			Rewritten: "never the global default, never one whose name begins with system-, and none by which pods would preempt those of other spaces",
		},
		{
			Name: ExportedPriorityClasses, Direction: ToHost, Values: []string{Off, Bound, PreemptingBound},
			Type: &schedulingv1.PriorityClass{}, Plural: PriorityClasses, InCluster: true, Selector: ofSpaces, Lasts: true,
			Rewritten: "those that the tenant made: name; value, 0 or more, no higher than the admin's; they preempt nobody but with `preempting:` on nodes of the space's own, never the default",
		},
		{
			Name: ExportedStorageClasses, Direction: ToHost, Values: []string{Off, Provisioners},
			Type: &storagev1.StorageClass{}, Plural: StorageClasses, InCluster: true, Selector: ofSpaces, Lasts: true,
			Rewritten: "those that the tenant made: name; of these provisioners only, no parameter that names a secret, no mount options, " +
				"no topologies, not Retain, never the default",
		},
		{
			Name: ExportedVolumes, Direction: ToHost, Values: []string{Off, Handles},
			Type: &corev1.PersistentVolume{}, Plural: Volumes, InCluster: true, Selector: ofExports, Lasts: true,
			Status: "that it is bound",
			Rewritten: "those that the tenant made and that a claim names: name, claim; of these drivers and handles only, Retain; no attributes, no secrets, " +
				"no class, no mount options, no node affinity",
		},
		{
			Name: ResourceClaims, Direction: ToHost, Values: []string{Off, On},
			Type: &resourcev1.ResourceClaim{}, Selector: ofSpaces,
			Status: "which requests have a device, under an alias, and the pods of the space that use it",
			Rewritten: "only classes that the quota of the space names; class, simple selectors, mode, count, alternatives, constraints; " +
				"no administrator's access, no tolerations, no parameters for drivers",
		},
		{
			Name: VolumeSnapshots, Direction: ToHost, Values: []string{Off, On},
			Type: &snapshotv1.VolumeSnapshot{}, Extension: true, Selector: ofSpaces, Lasts: true,
			Status:    "readiness, size, time; that there is a content, and an error, without their names and words",
			Rewritten: "the claim's name; no content by name; an imported class",
		},
		{
			Name: SnapshotClasses, Direction: FromHost, Values: []string{Off, ImportSelector, On, Selector},
			Type: &snapshotv1.VolumeSnapshotClass{}, Extension: true, InCluster: true, Class: true, Quiet: true,
			Status:    "name, deletion policy, default",
			Rewritten: "driver; no parameters",
		},
		{
			Name: Gateways, Direction: ToHost, Values: []string{Off, On},
			Type: &gatewayv1.Gateway{}, Extension: true, Exposure: gatewayExposure(),
			Status: "addresses; conditions without their words; attached routes",
			Rewritten: "names of TLS secrets; port 80 for HTTP, and 443 for HTTPS and TLS; host names as of ingresses; routes of the same namespace only; no addresses, no infrastructure, " +
				"no options; an imported class",
		},
		{
			Name: HTTPRoutes, Direction: ToHost, Values: []string{Off, On},
			Type: &gatewayv1.HTTPRoute{}, Extension: true, Exposure: routeExposure(),
			Status:    "conditions of its gateways without their words",
			Rewritten: "names of gateways and services, of the same namespace only; no expressions; host names as of ingresses; the core filters and mirrors. Needs `gateways=on`",
		},
		{
			Name: GatewayClasses, Direction: FromHost, Values: []string{Off, ImportSelector, On, Selector},
			Type: &gatewayv1.GatewayClass{}, Extension: true, InCluster: true, Class: true, Quiet: true,
			Status:    "name, conditions without their words, features",
			Rewritten: "controller; no parameters, no description",
		},
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package bounds

import "fmt"

// Quantity is something that a tenant can make grow.
type Quantity int

// Quantities of a space. An [Account] counts them.
const (
	// MemoryBytes are what requests hold in memory: of documents that are decoded, and of objects that are read from the
	// store, decoded, or written to a client.
	MemoryBytes Quantity = iota
	Watches
	WatchBytes
	StoreBytes
	CachedBytes
	Objects
	ClusterRoleBindings
	RoleBindings
	Autoscalers
	ResourceQuotas
	ServiceRanges
	NetworkPolicies
	DisruptionBudgets
	Deployments
	CustomResourceDefinitions
	SchemaBytes
	ServicePortsTotal
	ServiceTargets
	Gateways
	Routes
	VolumeSnapshots
	OwnClasses
	HostWritesPerSecond
	// Requests are counted where they arrive; those of the space's own controllers are not.
	RequestsReading
	RequestsWriting
	RequestsLongRunning
	// RequestRate is a rate, of which nothing is in use.
	RequestRate
	SyncedBytes
	SyncedBytesPerMinute
	IngressHostnames

	// Quantities of one object, or of one request.

	ServicePorts
	ServiceLinkVariables
	EndpointAddresses
	EndpointPorts
	EndpointTargets
	PolicyPeers
	IngressHosts
	IngressPaths
	GatewayListeners
	RouteHosts
	RouteRules
	RouteBackends
	AffinityTerms
	SpreadConstraints
	GracePeriodSeconds
	PodContainers
	ReadinessGates
	PodPorts
	VolumeItems
	TemplateBytes
	SelectorTerms
	ObjectLabels
	QuotaNames
	DefaultedResources
	KeyBits
	RoleRules
	RoleCombinations
	OwnerReferences
	BoundRules
	RuleSteps
	BoundWords
	IdentityGroups
	AggregationSelectors
	BindingSubjects
	ActiveJobs
	AutoscalerMetrics
	QuantityDigits
	StatefulSetBytes
	PodBytes
	DefinitionVersions
	DefinitionNames
	DefinitionPatterns
	PatternBytes
	PatternInstructions
	ValueInstructions
	ObjectExpressions
	MatchSteps
	ExpressionBytes
	PatchSteps
	FieldSteps
	RequestWebhooks
	ValueErrors
	RuleErrorSteps

	quantities // their number
)

// Scope is what a limit is for.
type Scope string

// Scopes.
const (
	PerSpace  Scope = "space"
	PerObject Scope = "object"
)

// Bound describes a quantity and its limit.
type Bound struct {
	// Name is how settings, metrics and messages call it.
	Name  string
	Scope Scope
	// Unit of the limit, in the plural: "bytes".
	Unit string
	// Default limit, where a space's settings give no other.
	Default int64
	// Counts says what is counted, as the end of "The limit counts …".
	Counts string
	// Remedy says what a tenant can do who meets the limit: an imperative.
	Remedy string
}

const miB = 1 << 20

// Table has a row for each quantity.
func Table() [quantities]Bound {
	return [quantities]Bound{
		MemoryBytes: {"memory-bytes", PerSpace, "bytes", 256 * miB,
			"what requests hold in memory until their answers are written: documents being decoded, objects read and decoded, OpenAPI documents of CustomResourceDefinitions, indentation of JSON and YAML, CEL expressions being compiled, values of admission policies' variables, 48 KiB for each open watch, and 16 KiB for each request of a controller that waits for its turn",
			"list with a limit (kubectl get --chunk-size=500), read answers without delay, and retry"},
		Watches: {"watches", PerSpace, "watches", 2000,
			"watches that clients have open",
			"end watches that are not used, and watch whole resources instead of single objects"},
		WatchBytes: {"watch-bytes", PerSpace, "bytes", 32 * miB,
			"changes that wait for slow clients of watches; the watch that is furthest behind is closed",
			"read watches without delay; a client that lists and watches again misses nothing"},
		StoreBytes: {"store-bytes", PerSpace, "bytes", 256 * miB,
			"what the space's store holds, old versions until they are compacted included",
			"delete objects, or ask the platform's admin for a larger store"},
		CachedBytes: {"cached-bytes", PerSpace, "bytes", 512 * miB,
			"what the API server, the controllers and the syncer keep in memory of the space's objects, decoded: with 1 KiB for each object, and 700 bytes for each owner reference",
			"delete objects, or ask the platform's admin for a higher limit"},
		Objects: {"objects", PerSpace, "objects", 50_000,
			"objects of all resources in the space's store",
			"delete objects, or ask the platform's admin for a higher limit"},
		ClusterRoleBindings: {"clusterrolebindings", PerSpace, "bindings", 2000,
			"ClusterRoleBindings in the space, all of which may be looked at for each request",
			"bind roles to groups, or use RoleBindings"},
		RoleBindings: {"rolebindings", PerSpace, "bindings", 10_000,
			"RoleBindings in the space, of which those of a namespace may be looked at for each request",
			"bind roles to groups, or use ClusterRoleBindings"},
		Autoscalers: {"horizontalpodautoscalers", PerSpace, "autoscalers", 500,
			"HorizontalPodAutoscalers in the space, each of which is compared with each of their pods",
			"delete some, or ask the platform's admin for a higher limit"},
		ResourceQuotas: {"resourcequotas", PerSpace, "quotas", 100,
			"ResourceQuotas in the space, each of a namespace is written whenever an object that it counts is made, and counts all of them whenever one is deleted",
			"delete some, or ask the platform's admin for a higher limit"},
		ServiceRanges: {"servicecidrs", PerSpace, "ranges", 20,
			"ServiceCIDRs in the space, each of which is compared with each other and with each address of a Service",
			"delete some: Services have addresses of the host"},
		NetworkPolicies: {"networkpolicies", PerSpace, "policies", 500,
			"NetworkPolicies in the space, each of which is compared with each pod of its namespace, again whenever one of them changes",
			"use one policy for more pods, or ask the platform's admin for a higher limit"},
		DisruptionBudgets: {"poddisruptionbudgets", PerSpace, "budgets", 500,
			"PodDisruptionBudgets in the space, each of which is compared with each pod of its namespace",
			"use one budget for more pods, or ask the platform's admin for a higher limit"},
		Deployments: {"deployments", PerSpace, "deployments", 2000,
			"Deployments in the space, each of which looks for its own among all ReplicaSets of its namespace",
			"delete some, or ask the platform's admin for a higher limit"},
		CustomResourceDefinitions: {"customresourcedefinitions", PerSpace, "definitions", 300,
			"CustomResourceDefinitions in the space",
			"delete definitions that are not used, or ask the platform's admin for a higher limit"},
		SchemaBytes: {"schema-bytes", PerSpace, "bytes", 16 * miB,
			"the stored size of all CustomResourceDefinitions, admission policies and webhook configurations of the space, 5 KiB and four times its length for each CEL expression in them, and 16 KiB for each webhook",
			"delete those that are not used, or shorten descriptions"},
		ServicePortsTotal: {"service-ports-total", PerSpace, "ports", 1000,
			"ports of all Services of the space, and Services without ports: each port is a rule on every node of the host, for each endpoint, and each Service is compared with each pod that changes",
			"delete Services or ports that are not used, or ask the platform's admin for a higher limit"},
		ServiceTargets: {"service-targets", PerSpace, "targets", 50_000,
			"pods that Services select, times their ports, of all Services of the space: controllers handle each whenever one of the pods changes; a Service beyond it keeps the endpoints that it has, and gets an event",
			"use more specific selectors or fewer ports, or ask the platform's admin for a higher limit"},
		Gateways: {"gateways", PerSpace, "gateways", 10,
			"Gateways of the space on the host: each may cost a load balancer",
			"delete some, or have several hosts share one"},
		Routes: {"httproutes", PerSpace, "routes", 100,
			"HTTPRoutes of the space on the host",
			"delete some, or join several"},
		VolumeSnapshots: {"volumesnapshots", PerSpace, "snapshots", 100,
			"VolumeSnapshots of the space on the host",
			"delete some"},
		OwnClasses: {"own-classes", PerSpace, "classes", 20,
			"the tenant's own priority classes, and as many storage classes, on the host, where no quota counts them",
			"delete some"},
		HostWritesPerSecond: {"host-writes-per-second", PerSpace, "writes", 200,
			"requests that write the space's objects to the host; those of ten seconds may come at once, further ones wait",
			"change fewer objects, or change them less often"},
		RequestsReading: {"requests-reading", PerSpace, "requests", 400,
			"requests that read and are not answered yet, those that wait for their turn included",
			"send fewer requests at once, and retry after the time in Retry-After"},
		RequestsWriting: {"requests-writing", PerSpace, "requests", 200,
			"requests that write and are not answered yet, those that wait for their turn included",
			"send fewer requests at once, and retry after the time in Retry-After"},
		RequestsLongRunning: {"requests-long-running", PerSpace, "requests", 2200,
			"watches, logs, exec, attach, port forwarding, and proxied requests that clients have open",
			"end those that are not used"},
		RequestRate: {"request-rate", PerSpace, "requests per second", 5000,
			"requests that arrive in a second; twice as many may arrive at once",
			"send fewer requests, and watch instead of polling"},
		SyncedBytes: {"synced-bytes", PerSpace, "bytes", 64 * miB,
			"the encoded size of the space's objects on the host",
			"delete objects, or data of ConfigMaps and Secrets that pods use, or ask the platform's admin for a higher limit"},
		SyncedBytesPerMinute: {"synced-bytes-per-minute", PerSpace, "bytes", 64 * miB,
			"the encoded size of what is created and updated on the host in a minute; further writes wait, and so do those to an object over 16 KiB, other than a pod, that was written less than 10 seconds ago",
			"change large objects less often"},
		IngressHostnames: {"ingress-hostnames", PerSpace, "host names", 1000,
			"host names of the space's Ingresses, Gateways and HTTPRoutes on the host",
			"delete some of them, or ask the platform's admin for a higher limit"},

		ServicePorts: {"service-ports", PerObject, "ports", 100,
			"ports of a Service",
			"spread them over several Services"},
		ServiceLinkVariables: {"service-link-variables", PerObject, "variables", 5000,
			"environment variables for Services of the namespace, in all containers of a pod together; beyond it the pod gets none, and an event",
			"set enableServiceLinks: false and find Services by DNS"},
		EndpointAddresses: {"endpoint-addresses", PerObject, "addresses", 1000,
			"addresses of an EndpointSlice, or of Endpoints",
			"spread them over several EndpointSlices"},
		EndpointPorts: {"endpoint-ports", PerObject, "ports", 100,
			"ports of an EndpointSlice, or of Endpoints",
			"spread them over several EndpointSlices"},
		EndpointTargets: {"endpoint-targets", PerObject, "targets", 5000,
			"addresses times ports of an EndpointSlice, or of Endpoints: each is a rule on every node of the host",
			"spread them over several EndpointSlices"},
		PolicyPeers: {"policy-peers", PerObject, "peers", 1000,
			"peers of a NetworkPolicy in one direction, with rules that have none and exceptions of address blocks",
			"spread them over several NetworkPolicies"},
		IngressHosts: {"ingress-hosts", PerObject, "hosts", 1000,
			"hosts of an Ingress, in rules and tls together",
			"spread them over several Ingresses"},
		IngressPaths: {"ingress-paths", PerObject, "paths", 1000,
			"paths of an Ingress",
			"spread them over several Ingresses"},
		GatewayListeners: {"gateway-listeners", PerObject, "listeners", 64,
			"listeners of a Gateway",
			"spread them over several Gateways"},
		RouteHosts: {"route-hosts", PerObject, "hosts", 16,
			"host names of an HTTPRoute",
			"spread them over several HTTPRoutes"},
		RouteRules: {"route-rules", PerObject, "rules", 16,
			"rules of an HTTPRoute",
			"spread them over several HTTPRoutes"},
		RouteBackends: {"route-backends", PerObject, "backends", 256,
			"backends of all rules of an HTTPRoute",
			"spread them over several HTTPRoutes"},
		AffinityTerms: {"affinity-terms", PerObject, "terms", 100,
			"affinity and anti-affinity terms between pods, of a pod",
			"use fewer terms"},
		SpreadConstraints: {"spread-constraints", PerObject, "constraints", 100,
			"topology spread constraints of a pod",
			"use fewer constraints"},
		GracePeriodSeconds: {"grace-period-seconds", PerObject, "seconds", 3600,
			"the termination grace period of a pod, or of one of its probes",
			"set a shorter period"},
		PodContainers: {"pod-containers", PerObject, "containers", 250,
			"containers of a pod, init and ephemeral containers included",
			"spread them over several pods"},
		ReadinessGates: {"readiness-gates", PerObject, "gates", 100,
			"readiness gates of a pod",
			"use fewer gates"},
		PodPorts: {"pod-ports", PerObject, "ports", 500,
			"ports of all containers of a pod, or of a pod template",
			"leave out ports that only inform"},
		VolumeItems: {"volume-items", PerObject, "items", 500,
			"items that volumes of a pod, or of a pod template, have of ConfigMaps, Secrets, and the downward API, and sources of projected volumes",
			"use whole ConfigMaps and Secrets, without items"},
		TemplateBytes: {"template-bytes", PerObject, "bytes", 64 << 10,
			"the size of a pod template as JSON, about: controllers hold hundreds of its pods at once",
			"put long texts into a ConfigMap, and mount it"},
		SelectorTerms: {"selector-terms", PerObject, "terms", 500,
			"labels, expressions, and values in a label selector, which controllers may match with each pod, or in the selectors of a request about access",
			"use fewer of them"},
		ObjectLabels: {"object-labels", PerObject, "labels", 250,
			"labels of an object, and its annotations, and its finalizers: controllers copy labels to what they make for it",
			"use fewer of them"},
		QuotaNames: {"quota-names", PerObject, "names", 100,
			"names of resources in a LimitRange, or in a ResourceQuota with its scopes and their values: a ResourceQuota compares them with each pod of its namespace",
			"use fewer of them"},
		DefaultedResources: {"defaulted-resources", PerObject, "resources", 20_000,
			"containers of a pod, times the names of resources in the LimitRanges of its namespace: an API server gives each container each default",
			"use fewer containers, or fewer resources in LimitRanges"},
		KeyBits: {"key-bits", PerObject, "bits", 8192,
			"the length of the RSA key in a CertificateSigningRequest, or in a caBundle: an API server checks signatures with it, which takes time that is quadratic in it",
			"use a shorter key, or one of an elliptic curve"},
		RoleRules: {"role-rules", PerObject, "rules", 1000,
			"rules of a Role or ClusterRole",
			"spread them over several roles"},
		RoleCombinations: {"role-combinations", PerObject, "combinations", 20_000,
			"API groups times resources times verbs times resource names of the rules of a Role or ClusterRole: an API server may compare each",
			"use *, or spread them over several rules"},
		OwnerReferences: {"owner-references", PerObject, "owners", 100,
			"owner references of an object, each of which the garbage collector looks for",
			"use fewer owners"},
		BoundRules: {"bound-rules", PerObject, "rules", 200_000,
			"rules of the roles of all ClusterRoleBindings, and of the RoleBindings of a namespace, once for each binding, for who asks what they may do or makes a role or a binding there",
			"delete bindings, or bind roles to groups"},
		RuleSteps: {"rule-steps", PerObject, "steps", 200_000_000,
			"these rules, times the combinations of a role that is made or bound",
			"use smaller roles, or * in them, or delete bindings"},
		BoundWords: {"bound-words", PerObject, "words", 2_000_000,
			"subjects of all ClusterRoleBindings, and of the RoleBindings of a namespace, with the verbs, groups, resources, names, and URLs in the rules of their roles, once for each binding: a request of any user may be compared with each",
			"use smaller roles, or * in them, bind roles to groups, or delete bindings"},
		IdentityGroups: {"identity-groups", PerObject, "groups", 250,
			"groups and extra values of a user that a request impersonates, or asks about in a SubjectAccessReview: each may be compared with each subject of each binding",
			"use fewer groups"},
		AggregationSelectors: {"aggregation-selectors", PerObject, "selectors", 20,
			"selectors in the aggregation rule of a ClusterRole",
			"use one label for all roles to aggregate"},
		BindingSubjects: {"binding-subjects", PerObject, "subjects", 1000,
			"subjects of a RoleBinding or ClusterRoleBinding",
			"use a group"},
		ActiveJobs: {"active-jobs", PerObject, "jobs", 1000,
			"jobs in status.active of a CronJob",
			"set concurrencyPolicy: Forbid, or Replace"},
		AutoscalerMetrics: {"autoscaler-metrics", PerObject, "metrics", 100,
			"metrics and scaling policies of a HorizontalPodAutoscaler",
			"use fewer of them"},
		QuantityDigits: {"quantity-digits", PerObject, "digits", 1000,
			"the digits of a quantity, such as a request of memory or the size of a volume, or its exponent if that is more",
			"use a shorter number, with a suffix such as Gi"},
		StatefulSetBytes: {"statefulset-bytes", PerObject, "bytes", 4 * miB,
			"the encoded size of a StatefulSet's spec, times its replicas: its controller holds a pod for each at once",
			"use fewer replicas, a smaller template, or several StatefulSets"},
		PodBytes: {"pod-bytes", PerObject, "bytes", 1 * miB,
			"the encoded size of a pod on the host, with the variables that Berth adds",
			"set enableServiceLinks: false, or use fewer containers"},
		DefinitionVersions: {"definition-versions", PerObject, "versions", 20,
			"versions of a CustomResourceDefinition",
			"remove versions that are not served"},
		DefinitionNames: {"definition-names", PerObject, "names", 20,
			"short names and categories of a CustomResourceDefinition",
			"use fewer of them"},
		DefinitionPatterns: {"definition-patterns", PerObject, "patterns", 500,
			"different patterns in the schemas of a CustomResourceDefinition",
			"use fewer patterns, or formats instead"},
		PatternBytes: {"pattern-bytes", PerObject, "bytes", 4096,
			"the length of a pattern in a CustomResourceDefinition, or of a regular expression in a CEL expression",
			"use a shorter pattern"},
		PatternInstructions: {"pattern-instructions", PerObject, "instructions", 5000,
			"the estimated length of the program that a pattern in a CustomResourceDefinition, or a regular expression in a CEL expression, is compiled to, with repetitions written out",
			"use smaller repetitions, and maxLength to bound the length of a value"},
		ValueInstructions: {"value-instructions", PerObject, "instructions", 10_000,
			"the estimated length of the programs of all patterns in a CustomResourceDefinition that a value is matched with, such as those in allOf and anyOf",
			"use fewer patterns for a value, or smaller repetitions"},
		ObjectExpressions: {"object-expressions", PerObject, "expressions", 1000,
			"CEL expressions in a CustomResourceDefinition, an admission policy, a webhook configuration, or selectors of devices",
			"use fewer expressions, or spread them over several objects"},
		MatchSteps: {"match-steps", PerObject, "steps", 80_000_000,
			"the length of a text that a CEL expression matches with a regular expression, times the instructions of that; for findAll, times a tenth of the text's length, or the number of matches that is asked for, as well; for indexOf and lastIndexOf of a text, the lengths of both texts, multiplied; for the operators in, == and !=, and for functions that compare or sort the elements of lists, four times the elements that are compared, with all that they hold, of which at most 4,200,000 are counted",
			"use shorter texts and lists, or a shorter regular expression"},
		ExpressionBytes: {"expression-bytes", PerObject, "bytes", 8 * miB,
			"the text or list that replace, join, format, flatten, or lists.range makes in a CEL expression, and the patch that a mutation of a MutatingAdmissionPolicy makes, as JSON, at 16 bytes an element",
			"use shorter texts and lists, a smaller precision, or several mutations"},
		PatchSteps: {"patch-steps", PerObject, "steps", 50_000_000,
			"the estimated work to apply a patch to an object, or all JSON patches of MutatingAdmissionPolicies to the object of a request. A JSON patch: operations times elements of the longest list, and bytes times levels. A merge patch: bytes times levels. A strategic merge patch: the squares of the lengths of lists",
			"use server-side apply, or several smaller patches, or replace the object; in a MutatingAdmissionPolicy, use applyConfiguration"},
		FieldSteps: {"field-steps", PerObject, "steps", 100_000_000,
			"the estimated work to validate an object and to track who manages its fields: the squares of the lengths of all maps and lists, the lengths of the paths of all fields, times 4, the owner references squared, times 100, and the entries of managedFields, times the fields of the object, times 100, or squared, times 10,000. Thus a map has at most 10,000 keys, a list 10,000 elements, and an object 100 field managers",
			"spread them over several objects, or use shorter names and fewer levels"},
		RequestWebhooks: {"request-webhooks", PerObject, "webhooks", 200,
			"validating webhooks with a rule for the resource of a request, which are all called at once, each with the object",
			"give webhooks rules for fewer resources or operations, or have one webhook do the work of several"},
		ValueErrors: {"value-errors", PerObject, "errors", 2000,
			"the errors that the schema of a custom resource can have for one value: required fields, and 4 for each schema in allOf, anyOf, oneOf, and not",
			"use fewer of them in the CustomResourceDefinition"},
		RuleErrorSteps: {"rule-error-steps", PerObject, "steps", 20_000_000_000,
			"the number of times that values of a custom resource are validated with CEL rules, times the bytes of all messages of these rules, with the paths of the values: an API server may answer them all",
			"validate the list or map with one rule instead of each element, or use shorter messages in the CustomResourceDefinition"},
	}
}

// Bound of the quantity.
func (q Quantity) Bound() Bound { return Table()[q] }

// Max is the quantity's default limit, as a length or a count.
func (q Quantity) Max() int { return int(q.Bound().Default) }

func (q Quantity) String() string {
	if q < 0 || q >= quantities {
		return fmt.Sprintf("quantity %d", int(q))
	}
	return q.Bound().Name
}

// Check returns an error that names the quantity, what was asked, the default limit and the remedy, if have is above it.
func (q Quantity) Check(have int64) error { return Limits(nil).Check(q, have) }

// Limits are limits of one space that differ from the defaults.
type Limits map[Quantity]int64

// Of returns a quantity's limit.
func (l Limits) Of(q Quantity) int64 {
	if limit, ok := l[q]; ok {
		return limit
	}
	return q.Bound().Default
}

// Check returns an [*ExceededError] if have is above the quantity's limit.
func (l Limits) Check(q Quantity, have int64) error {
	if limit := l.Of(q); have > limit {
		return &ExceededError{Quantity: q, Asked: have, Limit: limit}
	}
	return nil
}

// ByName returns the quantity that settings call so.
func ByName(name string) (Quantity, bool) {
	for q := range quantities {
		if q.Bound().Name == name {
			return q, true
		}
	}
	return 0, false
}

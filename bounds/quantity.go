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
	ExportedClasses
	ExportedVolumes
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
	ClaimParts
	ClaimBytes
	RouteHosts
	RouteRules
	RouteBackends
	AffinityTerms
	SpreadConstraints
	GracePeriodSeconds
	PodContainers
	ReadinessGates
	PodResources
	PodPorts
	VolumeItems
	PodReferences
	TemplateBytes
	SelectorTerms
	WorkloadSelectorBytes
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
	ComparedEntries
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

// ByName returns the quantity that settings call so.
func ByName(name string) (Quantity, bool) {
	for q := range quantities {
		if q.Bound().Name == name {
			return q, true
		}
	}
	return 0, false
}

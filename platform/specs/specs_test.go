// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package specs

import (
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/pod-security-admission/api"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

func space(name string, spec v1alpha1.SpaceSpec) v1alpha1.Space {
	return v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
}

func quantities(of ...string) map[string]resource.Quantity {
	out := map[string]resource.Quantity{}
	for i := 0; i < len(of); i += 2 {
		out[of[i]] = resource.MustParse(of[i+1])
	}
	return out
}

// T7, M4 (S10, S13): what a space's own spec says counts more than the defaults, and what neither says is built in.
func TestASpacesOwnSpecCountsMoreThanTheDefaults(t *testing.T) {
	config := Options{
		IdleAfter:      time.Hour,
		ReservedLabels: []string{"example.com", "corp.", "example.org/key"}, ShowNodeAddresses: true,
		SpaceDefaults: v1alpha1.SpaceSpec{
			Limits: quantities("memory-bytes", "512Mi", "watches", "10"),
			Sync:   []v1alpha1.SyncOption{{Resource: "nodes", Value: "all"}, {Resource: "daemonsets", Value: "translated"}},
			Quota:  map[corev1.ResourceName]resource.Quantity{"pods": resource.MustParse("7")},
			PodSecurity: v1alpha1.PodSecurity{
				Level: "restricted", DefaultSeccomp: "Unconfined", UserNamespaces: "Required", NetRaw: v1alpha1.Denied, HostProfiles: v1alpha1.Allowed,
			},
			Nodes: v1alpha1.Nodes{Selector: map[string]string{"pool": "all", "os": "linux"}, AllowedLabels: []string{"arch"}, Tolerations: []v1alpha1.Toleration{
				{Key: "pool", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
			}},
			Priority:      v1alpha1.Priority{PriorityClasses: v1alpha1.PriorityClasses{AllowedClasses: []string{"low"}, DefaultClass: "usual"}},
			Network:       v1alpha1.Network{AllowedDomains: []string{"apps.example.com"}, ClosedRanges: []string{"203.0.113.0/24"}},
			HostNamespace: v1alpha1.HostNamespace{Labels: map[string]string{"example.com/team": "all"}},
		},
		Spaces: []v1alpha1.Space{
			space("team-a", v1alpha1.SpaceSpec{
				Limits:      quantities("watches", "20"),
				Quota:       map[corev1.ResourceName]resource.Quantity{"pods": resource.MustParse("8")},
				LimitRange:  []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Default: corev1.ResourceList{"cpu": resource.MustParse("1")}}},
				PodSecurity: v1alpha1.PodSecurity{Level: "baseline", RuntimeClassName: "gvisor", NetRaw: v1alpha1.Allowed},
				Nodes:       v1alpha1.Nodes{Selector: map[string]string{"pool": "a"}, AllowedLabels: []string{"disk"}, Tolerations: []v1alpha1.Toleration{{Key: "a", Effect: corev1.TaintEffectNoExecute}}},
				Priority:    v1alpha1.Priority{PriorityClasses: v1alpha1.PriorityClasses{AllowedClasses: []string{"high"}}, Preemption: v1alpha1.PreemptionOwnNodes},
				Network:     v1alpha1.Network{AllowedDomains: []string{"a.example.com"}, ClosedRanges: []string{"198.18.0.0/15", "192.0.2.0/28"}},
			}),
			space("apart", v1alpha1.SpaceSpec{Isolation: v1alpha1.Dedicated}),
		},
	}
	s, err := New(&config)
	if err != nil {
		t.Fatal(err)
	}
	host := []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24")}
	all := shard.Settings{
		Limits: bounds.Limits{bounds.MemoryBytes: 512 << 20, bounds.Watches: 10},
		Placement: translate.Placement{Selector: map[string]string{"pool": "all", "os": "linux"}, Labels: []string{"arch"}, ByName: true, Tolerations: []corev1.Toleration{
			{Key: "pool", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule},
		}},
		Objects: translate.Settings{Priorities: translate.Priorities{Allowed: []string{"low"}, Default: "usual"}, Domains: []string{"apps.example.com"}, ReservedLabels: config.ReservedLabels, ShowNodeAddresses: true, PodSecurity: translate.PodSecurity{
			Level: api.LevelRestricted, Seccomp: corev1.SeccompProfileTypeUnconfined, UserNamespaces: true, DropNetRaw: true, HostProfiles: true,
		}},
		Closed: []netip.Prefix{netip.MustParsePrefix("198.51.100.0/24"), netip.MustParsePrefix("203.0.113.0/24")},
	}
	own := all
	own.Limits = bounds.Limits{bounds.MemoryBytes: 512 << 20, bounds.Watches: 20}
	own.Placement = translate.Placement{Selector: map[string]string{"pool": "a", "os": "linux"}, Labels: []string{"arch", "disk"}, ByName: true, Tolerations: []corev1.Toleration{{Key: "a", Effect: corev1.TaintEffectNoExecute}}}
	own.Objects.Priorities = translate.Priorities{Allowed: []string{"high"}, Default: "usual", OwnNodes: true}
	own.Objects.Domains = []string{"a.example.com"}
	own.Objects.DefaultLimits = corev1.ResourceList{"cpu": resource.MustParse("1")}
	own.Objects.PodSecurity.Level, own.Objects.PodSecurity.RuntimeClass, own.Objects.PodSecurity.DropNetRaw = api.LevelBaseline, "gvisor", false
	for name, want := range map[string]shard.Settings{"apart": all, "of an earlier run": all, "team-a": own} {
		got := s.Shard(name, host)
		if name == "team-a" { // one range is special, and closed anyway
			got.Closed = got.Closed[:len(got.Closed)-1]
			if len(got.Closed) != 2 {
				t.Errorf("closed to team-a: %v", got.Closed)
			}
		}
		if diff := cmp.Diff(want, got, cmp.Comparer(func(a, b netip.Prefix) bool { return a == b }), cmpopts.IgnoreFields(shard.Settings{}, "Sync", "Access", "HostLimits")); diff != "" {
			t.Errorf("%s: -want +got:\n%s", name, diff)
		}
	}
	if quota := s.Of("team-a").Quota; quota.Pods().Value() != 8 || len(quota) != len(v1alpha1.DefaultQuota()) {
		t.Errorf("the quota of team-a is %v", quota)
	}
	if got := s.Of("apart").Namespace.Labels["example.com/team"]; got != "all" {
		t.Errorf("the namespace is labelled %q", got)
	}
	if s.Sync().Sync.Value(resources.Nodes) != resources.All {
		t.Errorf("synced is %+v", s.Sync())
	}
	changed, errs := s.Read(&v1alpha1.SpaceSpec{Limits: quantities("watches", "30")}, nil)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	s.Set("team-a", changed)
	if limits := s.Limits("team-a"); limits[bounds.Watches] != 30 || limits[bounds.MemoryBytes] != 512<<20 {
		t.Errorf("with another spec, the limits are %v", limits)
	}
	if idle := s.Idle("team-a"); idle.After != time.Hour || !reflect.DeepEqual(idle.Ignored.UserAgents, v1alpha1.DefaultIgnoredUserAgents()) {
		t.Errorf("without a word about sleep, the space is idle when %+v", idle)
	}
	quiet, errs := s.Read(&v1alpha1.SpaceSpec{Sleep: v1alpha1.Sleep{IdleAfterSeconds: ptr.To[int32](0), IgnoredClients: v1alpha1.Clients{UserAgents: []string{"k9s"}, Users: []string{"bot"}}}}, nil)
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	s.Set("team-a", quiet)
	if idle, want := s.Idle("team-a"), (shard.Idle{Ignored: shard.Clients{UserAgents: []string{"k9s"}, Users: []string{"bot"}}}); !reflect.DeepEqual(idle, want) {
		t.Errorf("the space is idle when %+v, want %+v", idle, want)
	}
	s.Remove("team-a")
	if limits := s.Limits("team-a"); limits[bounds.Watches] != 10 {
		t.Errorf("of a space that is gone, the limits are %v", limits)
	}
	if usual, err := New(&Options{}); err != nil || usual.Of("any").Quota != nil || usual.Objects("any").DefaultLimits != nil {
		t.Error("without a word about quota and limits, they are not the built-in ones")
	}
}

// X3: what means nothing is refused with the field, the value, and the remedy.
func TestSpecsThatMeanNothingAreRefused(t *testing.T) {
	pods := v1alpha1.SpaceSpec{Sync: []v1alpha1.SyncOption{{Resource: "pods", Value: "some"}}}
	for says, spec := range map[string]v1alpha1.SpaceSpec{
		`spec.limits[memory]: Invalid value: "memory": not a limit`:                                                           {Limits: quantities("memory", "1Gi")},
		`spec.limits[service-ports]: Invalid value: "service-ports": not a limit`:                                             {Limits: quantities("service-ports", "5")},
		`spec.limits[watches]: Invalid value: "0": must be a whole number of watches, 1 or more`:                              {Limits: quantities("watches", "0")},
		`spec.limits[watches]: Invalid value: "500m"`:                                                                         {Limits: quantities("watches", "500m")},
		`spec.podSecurity.level: Unsupported value: "privileged": supported values: "baseline"`:                               {PodSecurity: v1alpha1.PodSecurity{Level: "privileged"}},
		`spec.podSecurity.netRaw: Unsupported value: "on"`:                                                                    {PodSecurity: v1alpha1.PodSecurity{NetRaw: "on"}},
		`spec.podSecurity.runtimeClassName: Invalid value: "A"`:                                                               {PodSecurity: v1alpha1.PodSecurity{RuntimeClassName: "A"}},
		`spec.nodes.allowedLabels[0]: Invalid value: "kubernetes.io/hostname"`:                                                {Nodes: v1alpha1.Nodes{AllowedLabels: []string{corev1.LabelHostname}}},
		`spec.nodes.tolerations[0].key: Invalid value: ""`:                                                                    {Nodes: v1alpha1.Nodes{Tolerations: []v1alpha1.Toleration{{Key: "", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}}}},
		`spec.nodes.tolerations[0].value: Invalid value: "b": must be empty with the operator Exists`:                         {Nodes: v1alpha1.Nodes{Tolerations: []v1alpha1.Toleration{{Key: "a", Operator: corev1.TolerationOpExists, Value: "b", Effect: corev1.TaintEffectNoSchedule}}}},
		`spec.nodes.tolerations[0].operator: Unsupported value: "Gt"`:                                                         {Nodes: v1alpha1.Nodes{Tolerations: []v1alpha1.Toleration{{Key: "a", Operator: corev1.TolerationOpGt, Value: "1", Effect: corev1.TaintEffectNoSchedule}}}},
		`spec.nodes.tolerations[0].effect: Unsupported value: ""`:                                                             {Nodes: v1alpha1.Nodes{Tolerations: []v1alpha1.Toleration{{Key: "a"}}}},
		`spec.priority.allowedClasses[0]: Invalid value: "system-node-critical": classes of the system`:                       {Priority: v1alpha1.Priority{PriorityClasses: v1alpha1.PriorityClasses{AllowedClasses: []string{"system-node-critical"}}}},
		`spec.priority.defaultClass: Invalid value: "A"`:                                                                      {Priority: v1alpha1.Priority{PriorityClasses: v1alpha1.PriorityClasses{DefaultClass: "A"}}},
		`spec.priority.preemption: Unsupported value: "Always"`:                                                               {Priority: v1alpha1.Priority{Preemption: "Always"}},
		`spec.priority.preemption: Invalid value: "OwnNodes": the space has no nodes of its own`:                              {Priority: v1alpha1.Priority{Preemption: v1alpha1.PreemptionOwnNodes}},
		`spec.nodes.selector: Invalid value: "a b"`:                                                                           {Nodes: v1alpha1.Nodes{Selector: map[string]string{"a b": "c"}}},
		`spec.network.allowedDomains[0]: Invalid value: "*.example.com"`:                                                      {Network: v1alpha1.Network{AllowedDomains: []string{"*.example.com"}}},
		`spec.network.closedRanges[0]: Invalid value: "203.0.113.1/24": has bits after the prefix length; use 203.0.113.0/24`: {Network: v1alpha1.Network{ClosedRanges: []string{"203.0.113.1/24"}}},
		`spec.network.closedRanges[0]: Invalid value: "0.0.0.0/0": must not contain all addresses`:                            {Network: v1alpha1.Network{ClosedRanges: []string{"0.0.0.0/0"}}},
		`spec.network.closedRanges[0]: Invalid value: "example.com": must be an address range`:                                {Network: v1alpha1.Network{ClosedRanges: []string{"example.com"}}},
		`spec.hostNamespace.labels[berth.dev/space]: Invalid value`:                                                           {HostNamespace: v1alpha1.HostNamespace{Labels: map[string]string{"berth.dev/space": "b"}}},
		`spec.hostNamespace.labels[pod-security.kubernetes.io/enforce]: Invalid value`:                                        {HostNamespace: v1alpha1.HostNamespace{Labels: map[string]string{"pod-security.kubernetes.io/enforce": "privileged"}}},
		`spec.hostNamespace.annotations[berth.dev/store]: Invalid value`:                                                      {HostNamespace: v1alpha1.HostNamespace{Annotations: map[string]string{"berth.dev/store": "b"}}},
		`spec.hostNamespace.annotations[scheduler.alpha.kubernetes.io/defaultTolerations]: Invalid value`:                     {HostNamespace: v1alpha1.HostNamespace{Annotations: map[string]string{"scheduler.alpha.kubernetes.io/defaultTolerations": "[]"}}},
		`spec.quota[pods]: Invalid value: "-5": must be 0 or more`:                                                            {Quota: map[corev1.ResourceName]resource.Quantity{"pods": resource.MustParse("-5")}},
		`spec.quota[foo bar]: Invalid value: "foo bar": must be the name`:                                                     {Quota: map[corev1.ResourceName]resource.Quantity{"foo bar": resource.MustParse("5")}},
		`spec.isolation: Unsupported value: "Own"`:                                                                            {Isolation: "Own"},
		`spec.snapshots.to: Forbidden: the platform writes snapshots to no place`:                                             {Snapshots: v1alpha1.Snapshots{To: "file:///backups"}},
		`spec.snapshots: Forbidden: the platform has no storage for snapshots; start Berth`:                                   {Snapshots: v1alpha1.Snapshots{Replication: v1alpha1.ReplicationContinuous}},
		`spec.snapshots: Forbidden: the platform has no storage for snapshots`:                                                {Snapshots: v1alpha1.Snapshots{Keep: 3}},
		`spec.sync: Invalid value: "pods=some"`:                                                                               pods,
		`spec.sync[1].value: Forbidden: gateways=on: the platform offers gateways=off; offer more to spaces with allowedSync`: {Sync: []v1alpha1.SyncOption{{Resource: "ingresses", Value: "off"}, {Resource: "gateways", Value: "on"}}},
	} {
		if _, err := New(&Options{Spaces: []v1alpha1.Space{space("a", spec)}}); err == nil || !strings.Contains(err.Error(), "spaces[0]."+says) || strings.Contains(err.Error(), "\n") {
			t.Errorf("got %v, want one line that says %q", err, says)
		}
	}
	for says, config := range map[string]Options{
		`spaceDefaults.snapshots.to: Forbidden: the platform writes snapshots to file:///a, file:///b; allow another URL with --snapshot-also-to`: {
			SnapshotDestinations: []string{"file:///a", "file:///b"}, SpaceDefaults: v1alpha1.SpaceSpec{Snapshots: v1alpha1.Snapshots{To: "file:///b/../c"}},
		},
		`spaceDefaults.snapshots.intervalSeconds: Invalid value: 1: must be 0, or 60 or more`: {
			SnapshotDestinations: []string{"file:///a"}, SpaceDefaults: v1alpha1.SpaceSpec{Snapshots: v1alpha1.Snapshots{IntervalSeconds: ptr.To[int32](1)}},
		},
		`spaceDefaults.sync: Invalid value: "pods=some"`:                   {SpaceDefaults: pods},
		`spaceDefaults.isolation: Forbidden: set this field in each space`: {SpaceDefaults: v1alpha1.SpaceSpec{Isolation: v1alpha1.Dedicated}},
		`spaceDefaults.priority.preemption: Forbidden: set this field in`:  {SpaceDefaults: v1alpha1.SpaceSpec{Priority: v1alpha1.Priority{Preemption: v1alpha1.PreemptionOwnNodes}}},
		`spaceDefaults.limits[x]: Invalid value`:                           {SpaceDefaults: v1alpha1.SpaceSpec{Limits: quantities("x", "1")}},
		`spaces[0].spec.kubernetesVersion: Invalid value: "1.36": this platform serves Kubernetes 1.37`: {
			KubernetesVersion: "1.37", Spaces: []v1alpha1.Space{space("a", v1alpha1.SpaceSpec{KubernetesVersion: "1.36"})},
		},
		`spaces[0].metadata.name: Invalid value: "system"`:                {Spaces: []v1alpha1.Space{space("system", v1alpha1.SpaceSpec{})}},
		`spaces[1].metadata.name: Duplicate value: "a"`:                   {Spaces: []v1alpha1.Space{space("a", v1alpha1.SpaceSpec{}), space("a", v1alpha1.SpaceSpec{})}},
		`ingressAnnotations[0]: Invalid value: "a b"`:                     {IngressAnnotations: []string{"a b"}},
		`reservedLabels[1]: Invalid value: "not a key": must be a domain`: {ReservedLabels: []string{"corp.", "not a key"}},
		`allowedSync: Invalid value: "nodes=some"`:                        {AllowedSync: []v1alpha1.SyncOption{{Resource: "nodes", Value: "some"}}},
		`allowedSync: Invalid value: "configmaps=used": must be no less than what spaces have by spaceDefaults.sync, or by default: configmaps=all: the platform offers configmaps=used`: {
			AllowedSync: []v1alpha1.SyncOption{{Resource: "configmaps", Value: "used"}}, SpaceDefaults: v1alpha1.SpaceSpec{Sync: []v1alpha1.SyncOption{{Resource: "configmaps", Value: "all"}}},
		},
	} {
		if _, err := New(&config); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("got %v, want it to say %q", err, says)
		}
	}
}

// D2: each space may have snapshots of its own, of which what it does not say is as the defaults have it.
func TestSnapshotsOfASpaceAreAsItsSpecAndTheDefaultsSay(t *testing.T) {
	spec := func(to string, every *int32, keep int32) v1alpha1.SpaceSpec {
		return v1alpha1.SpaceSpec{Snapshots: v1alpha1.Snapshots{To: to, IntervalSeconds: every, Keep: keep}}
	}
	s, err := New(&Options{
		SnapshotDestinations: []string{"file:///a", "file:///b"}, SpaceDefaults: spec("", ptr.To[int32](120), 0),
		Spaces: []v1alpha1.Space{space("own", spec("file:///b", ptr.To[int32](60), 3)), space("off", spec("", ptr.To[int32](0), 0)), space("usual", v1alpha1.SpaceSpec{})},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]Snapshots{
		"own": {To: "file:///b", Every: time.Minute, Keep: 3}, "off": {}, "usual": {Every: 2 * time.Minute}, "nobody": {Every: 2 * time.Minute},
	} {
		if got := s.Of(name).Snapshots; got != want {
			t.Errorf("%s has %v, want %v", name, got, want)
		}
	}
	if s, err = New(&Options{}); err != nil || s.Of("a").Snapshots != (Snapshots{Every: -1}) {
		t.Errorf("if nobody says anything: %v (%v)", s.Of("a").Snapshots, err)
	}
}

// T7, S1: a space syncs what its spec says, within what the platform offers, and without a word what the defaults say.
func TestASpaceSyncsWhatItsSpecSaysOfWhatIsOffered(t *testing.T) {
	options := func(args ...string) (out []v1alpha1.SyncOption) {
		for _, arg := range args {
			resource, value, _ := strings.Cut(arg, "=")
			out = append(out, v1alpha1.SyncOption{Resource: resource, Value: value})
		}
		return out
	}
	s, err := New(&Options{
		SpaceDefaults: v1alpha1.SpaceSpec{Sync: options("configmaps=all")}, AllowedSync: options("nodes=all", "daemonsets=translated"),
		Spaces: []v1alpha1.Space{
			space("more", v1alpha1.SpaceSpec{Sync: options("daemonsets=translated", "nodes=all")}),
			space("less", v1alpha1.SpaceSpec{Sync: options("configmaps=off", "ingresses=off")}),
			space("usual", v1alpha1.SpaceSpec{}),
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	if args := s.Sync().Sync.Args(); !slices.Equal(args, []string{"configmaps=all", "daemonsets=translated", "nodes=all"}) {
		t.Errorf("the host's watches are for %q", args)
	}
	for name, want := range map[string][]string{
		"more": {"configmaps=all", "daemonsets=translated", "nodes=all"}, "less": {"configmaps=off", "ingresses=off"}, "usual": {"configmaps=all"}, "nobody": {"configmaps=all"},
	} {
		settings := s.Shard(name, nil)
		if got := settings.Sync.Args(); !slices.Equal(got, want) {
			t.Errorf("%s syncs %q, want %q", name, got, want)
		}
		if settings.Placement.ByName != (name == "more") {
			t.Errorf("whether pods of %s may name nodes: %v", name, settings.Placement.ByName)
		}
	}
	for asks, says := range map[string]string{"daemonsets=translated": "nodes=all", "httproutes=on": "gateways=on"} { // what it needs is off
		if _, errs := s.Read(&v1alpha1.SpaceSpec{Sync: options(asks)}, field.NewPath("spec")); len(errs) != 1 || !strings.Contains(errs[0].Error(), says) {
			t.Errorf("%s alone: got %v, want one error that says %q", asks, errs, says)
		}
	}
}

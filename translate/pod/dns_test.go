// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/translate/pod"
	"github.com/berth-dev/berth/translate/sample"
)

// S4, S6: resolv.conf as a kubelet of a cluster of the space's own would write
// it.
func TestDNSIsThatOfAClusterOfTheSpacesOwn(t *testing.T) {
	searches := []string{"default.svc.cluster.local", "svc.cluster.local", "cluster.local"}
	ndots := []corev1.PodDNSConfigOption{{Name: "ndots", Value: ptr.To("5")}}
	type args struct {
		nameservers []string
		domain      string
		policy      corev1.DNSPolicy
		config      *corev1.PodDNSConfig
	}
	type want struct {
		policy corev1.DNSPolicy
		config *corev1.PodDNSConfig
	}
	cases := map[string]struct {
		reason string
		args   args
		want   want
	}{
		"ClusterFirst": {
			reason: "the host's kubelet would write the host's servers and namespace",
			args:   args{nameservers: []string{"10.1.0.10"}, policy: corev1.DNSClusterFirst},
			want:   want{corev1.DNSNone, &corev1.PodDNSConfig{Nameservers: []string{"10.1.0.10"}, Searches: searches, Options: ndots}},
		},
		"Unset": {
			reason: "no policy is the default one",
			args:   args{nameservers: []string{"10.1.0.10"}},
			want:   want{corev1.DNSNone, &corev1.PodDNSConfig{Nameservers: []string{"10.1.0.10"}, Searches: searches, Options: ndots}},
		},
		"WithHostNet": {
			reason: "no pod of a space has the host's network, so that it is as good as ClusterFirst",
			args:   args{nameservers: []string{"10.1.0.10"}, policy: corev1.DNSClusterFirstWithHostNet},
			want:   want{corev1.DNSNone, &corev1.PodDNSConfig{Nameservers: []string{"10.1.0.10"}, Searches: searches, Options: ndots}},
		},
		"OtherDomain": {
			reason: "a space's domain is configurable",
			args:   args{nameservers: []string{"fd00::10"}, domain: "space.example", policy: corev1.DNSClusterFirst},
			want: want{corev1.DNSNone, &corev1.PodDNSConfig{
				Nameservers: []string{"fd00::10"}, Searches: []string{"default.svc.space.example", "svc.space.example", "space.example"}, Options: ndots,
			}},
		},
		"TenantsConfigIsAdded": {
			reason: "a kubelet appends it, without repetitions, and lets its options override",
			args: args{nameservers: []string{"10.1.0.10"}, policy: corev1.DNSClusterFirst, config: &corev1.PodDNSConfig{
				Nameservers: []string{"9.9.9.9", "10.1.0.10"}, Searches: []string{"example.com", "cluster.local"},
				Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: ptr.To("2")}, {Name: "edns0"}},
			}},
			want: want{corev1.DNSNone, &corev1.PodDNSConfig{
				Nameservers: []string{"10.1.0.10", "9.9.9.9"}, Searches: append(searches[:3:3], "example.com"),
				Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: ptr.To("2")}, {Name: "edns0"}},
			}},
		},
		"TooMany": {
			reason: "a kubelet cuts to three servers, and so does the host's API refuse more",
			args: args{nameservers: []string{"10.1.0.10", "fd00::10"}, policy: corev1.DNSClusterFirst, config: &corev1.PodDNSConfig{
				Nameservers: []string{"9.9.9.9", "8.8.8.8"}, Searches: sample.ManySearches(32, 20),
			}},
			want: want{corev1.DNSNone, &corev1.PodDNSConfig{
				Nameservers: []string{"10.1.0.10", "fd00::10", "9.9.9.9"}, Searches: append(searches[:3:3], sample.ManySearches(29, 20)...), Options: ndots,
			}},
		},
		"TooLong": {
			reason: "a search list has 2048 bytes: 48 of the cluster's and 9 times 221",
			args: args{nameservers: []string{"10.1.0.10"}, policy: corev1.DNSClusterFirst, config: &corev1.PodDNSConfig{
				Searches: append(sample.ManySearches(9, 220), "last.example.com"),
			}},
			want: want{corev1.DNSNone, &corev1.PodDNSConfig{Nameservers: []string{"10.1.0.10"}, Searches: append(searches[:3:3], sample.ManySearches(9, 220)...), Options: ndots}},
		},
		"None": {
			reason: "the tenant's own config, and nothing else",
			args:   args{nameservers: []string{"10.1.0.10"}, policy: corev1.DNSNone, config: &corev1.PodDNSConfig{Nameservers: []string{"9.9.9.9"}}},
			want:   want{corev1.DNSNone, &corev1.PodDNSConfig{Nameservers: []string{"9.9.9.9"}}},
		},
		"Default": {
			reason: "the tenant asks for the node's resolver",
			args:   args{nameservers: []string{"10.1.0.10"}, policy: corev1.DNSDefault},
			want:   want{policy: corev1.DNSDefault},
		},
		"NoServerYet": {
			reason: "without a DNS server of its own, a space's pods keep the host's",
			args:   args{policy: corev1.DNSClusterFirst, config: &corev1.PodDNSConfig{Searches: []string{"example.com"}}},
			want:   want{corev1.DNSClusterFirst, &corev1.PodDNSConfig{Searches: []string{"example.com"}}},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			v := sample.PlainPod()
			v.Spec.DNSPolicy, v.Spec.DNSConfig = tc.args.policy, tc.args.config
			space := sample.Demo()
			space.Nameservers, space.ClusterDomain = tc.args.nameservers, tc.args.domain
			host := pod.ToHost(space, v, sample.Surroundings{})
			got := want{host.Spec.DNSPolicy, host.Spec.DNSConfig}
			if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(want{})); diff != "" {
				t.Errorf("%s: -want +got:\n%s", tc.reason, diff)
			}
		})
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/pod-security-admission/api"

	"github.com/berth-dev/berth/translate"
)

// M4 (S10, S13): what is said of one space counts more than what is said of all.
func TestSettingsOfASpace(t *testing.T) {
	o := settingsOptions{
		podSecurity: []string{"team-a:level=baseline", "team-a:runtime-class=gvisor", "team-a:net-raw=on", "level=restricted", "seccomp=Unconfined", "user-namespaces=on",
			"net-raw=off", "host-profiles=on"},
		reservedLabels: []string{"example.com", "corp.", "example.org/key"}, ingressDomains: []string{"apps.example.com", "team-a:a.example.com"},
	}
	of, err := o.settings()
	if err != nil {
		t.Fatal(err)
	}
	all := translate.Settings{Domains: []string{"apps.example.com"}, ReservedLabels: o.reservedLabels, PodSecurity: translate.PodSecurity{
		Level: api.LevelRestricted, Seccomp: corev1.SeccompProfileTypeUnconfined, UserNamespaces: true, DropNetRaw: true, HostProfiles: true,
	}}
	if diff := cmp.Diff(all, of("team-b")); diff != "" {
		t.Errorf("of all: -want +got:\n%s", diff)
	}
	all.Domains = []string{"a.example.com"}
	all.PodSecurity.Level, all.PodSecurity.RuntimeClass, all.PodSecurity.DropNetRaw = api.LevelBaseline, "gvisor", false
	if diff := cmp.Diff(all, of("team-a")); diff != "" {
		t.Errorf("of one: -want +got:\n%s", diff)
	}
	for value, says := range map[string]string{
		"level=privileged": "want one of baseline, restricted", "level": "want one of", "net-raw=maybe": "want one of on, off",
		"runtime-class=": "runtime-class", "root=on": "no setting", "Team:level=baseline": "--pod-security",
	} {
		if _, err := (&settingsOptions{podSecurity: []string{value}}).settings(); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: got %v, want %q", value, err, says)
		}
	}
	if _, err := (&settingsOptions{ingressDomains: []string{"*.example.com"}}).settings(); err == nil {
		t.Error("a pattern is a domain")
	}
	if _, err := (&settingsOptions{reservedLabels: []string{"not a key"}}).settings(); err == nil {
		t.Error("any text is a key")
	}
}

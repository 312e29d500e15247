// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dns_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/berth-dev/berth/dns"
)

// N1: the domain of the cluster that Berth runs in is hidden without being named
// by a flag; a machine's own search domain may be public.
func TestTheClustersDomainIsReadFromResolvConf(t *testing.T) {
	file := filepath.Join(t.TempDir(), "resolv.conf")
	for text, want := range map[string][]string{
		"search berth.svc.corp.example svc.corp.example corp.example example.com\n": {"corp.example."},
		"search example.com svc\n": nil,
		"search A.SVC.Corp.\n":     {"corp."},
		"nameserver 192.0.2.1\n":   nil,
	} {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		if got, err := dns.SystemClusterDomains(file); err != nil || !slices.Equal(got, want) {
			t.Errorf("of %q: %q, %v", text, got, err)
		}
	}
	if got, err := dns.SystemClusterDomains(file + ".not"); err != nil || len(got) > 0 {
		t.Errorf("of no file: %q, %v", got, err)
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"reflect"
	"testing"
	"time"

	"github.com/spf13/cobra"

	"github.com/berth-dev/berth/platform"
)

// T9, X4: a space's own process gets all that this one was told.
func TestASpacesOwnProcessIsToldTheSame(t *testing.T) {
	told := runOptions{
		Config: platform.Config{
			DataDir: "/data", IdleAfter: time.Minute, Pods: platform.Pods{Address: "192.0.2.1", APIPort: 1, DNSPort: 2},
			Traces: platform.Traces{Endpoint: "127.0.0.1:4317", PerMillion: 7},
		},
		spaceOptions: spaceOptions{
			sync:     syncOptions{switches: []string{"ingresses=off", "priorityclasses=tier in (a,b)"}, annotations: []string{"example.com/a"}},
			nodes:    nodeOptions{selectors: []string{"pool=shared"}, labels: []string{"own:disk"}},
			settings: settingsOptions{podSecurity: []string{"level=restricted"}, reservedLabels: []string{"example.com"}, ingressDomains: []string{"apps.example.com"}, showNodeAddresses: true},
			limits:   limitOptions{limits: []string{"own:watches=5"}}, network: networkOptions{closed: []string{"203.0.113.0/24"}},
		},
		verbosity: 3,
	}
	own := platform.DedicatedSpace{Space: "own", HostKubeconfig: "/host", Endpoint: "https://berth.example"}
	var heard dedicatedOptions
	cmd := &cobra.Command{}
	heard.addFlags(cmd)
	args := dedicatedArgs(&told, own)
	if args[0] != "dedicated" || args[1] != "own" {
		t.Fatalf("the command is %q", args)
	}
	if err := cmd.ParseFlags(args[2:]); err != nil {
		t.Fatal(err)
	}
	heard.Space = args[1]
	heard.Pods.HostDomain = "" // of the DNS, which this process serves
	if want := (dedicatedOptions{runOptions: told, DedicatedSpace: own}); !reflect.DeepEqual(heard, want) {
		t.Errorf("it hears %+v, was told %+v", heard, want)
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package peers_test

import (
	"strings"
	"testing"

	"github.com/berth-dev/berth/platform/peers"
)

func TestOptionsThatMakeNoShardAreRefused(t *testing.T) {
	for address, refused := range map[string]bool{
		"10.0.0.7:7444": false, "[fd00::7]:7444": false,
		"0.0.0.0:7444": true, "[::]:7444": true, "10.0.0.7:0": true, "224.0.0.1:7444": true, "berth-0:7444": true, "10.0.0.7": true, "": true,
	} {
		o := peers.Options{Name: "berth-0", Namespace: "berth", Address: address}
		if err := o.Check(); (err != nil) != refused || refused && !strings.Contains(err.Error(), "shard-address") {
			t.Errorf("the address %q: %v", address, err)
		}
	}
	for name, o := range map[string]peers.Options{"zone": {Zone: "a"}, "address": {Address: "10.0.0.7:7444"}, "selector": {Selector: "a=b"}} {
		if err := o.Check(); err == nil {
			t.Errorf("without a name, the %s is ignored", name)
		}
	}
}

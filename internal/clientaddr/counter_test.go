// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package clientaddr_test

import (
	"testing"

	"github.com/berth-dev/berth/internal/clientaddr"
)

// L3: a client that chooses among the addresses of its network is still one client.
func TestAClientIsAnAddressOrANetworkOfIPv6(t *testing.T) {
	for remote, want := range map[string]string{
		"192.0.2.7:1":                      "192.0.2.7/32",
		"[::ffff:192.0.2.7]:1":             "192.0.2.7/32",
		"[2001:db8:1:2:3:4:5:6]:1":         "2001:db8:1:2::/64",
		"[2001:db8:1:2:ffff:ffff::]:65535": "2001:db8:1:2::/64",
		"[fe80::1%eth0]:1":                 "fe80::/64",
		"127.0.0.1:1":                      "127.0.0.0/8", // this machine
		"127.255.0.9:2":                    "127.0.0.0/8",
		"[::1]:1":                          "127.0.0.0/8",
		"[::ffff:127.0.0.1]:1":             "127.0.0.0/8",
		"[::2]:1":                          "::/64",
		"@":                                "invalid Prefix",
	} {
		if got := clientaddr.OfRemote(remote).String(); got != want {
			t.Errorf("%s: %s, want %s", remote, got, want)
		}
	}
}

func TestACounterBoundsEachClientAndAllTogether(t *testing.T) {
	c := clientaddr.NewCounter(3, 2)
	a, b := clientaddr.OfRemote("192.0.2.1:1"), clientaddr.OfRemote("192.0.2.2:1")
	for range 2 {
		if !c.Take(a) {
			t.Fatal("a client gets less than it may have")
		}
	}
	if c.Take(a) {
		t.Error("a client gets more than it may have")
	}
	if !c.Take(b) || c.Take(b) {
		t.Error("all together get more or less than there is")
	}
	c.Give(a)
	if !c.Take(b) {
		t.Error("what was given back is not to be had")
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"testing"

	"github.com/berth-dev/berth/vcluster/pki"
)

// B11, L3: spaces come and go, and their certificates with them.
func TestCertificatesOfSpacesThatAreGoneAreNotKept(t *testing.T) {
	ca, err := pki.OpenCA(t.TempDir(), "pods")
	if err != nil {
		t.Fatal(err)
	}
	addresses := map[string]string{"steady": "192.0.2.1"}
	c := &PodCertificates{CA: ca, Domain: "cluster.local", Address: func(space string) string { return addresses[space] }}
	get := func(space string) {
		t.Helper()
		if _, err := c.Get(space); err != nil {
			t.Fatal(err)
		}
	}
	get("steady")
	first := c.issued["steady"].serving
	for i := range 20 {
		space := fmt.Sprintf("passing-%d", i)
		get(space) // before it has an address
		addresses[space] = "192.0.2.2"
		get(space)
		delete(addresses, space)
	}
	get("steady")
	if len(c.issued) > 2 || c.issued["steady"].serving != first {
		t.Errorf("%d certificates are kept, or the steady space got another", len(c.issued))
	}
}

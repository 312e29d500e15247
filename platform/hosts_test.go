// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"crypto/tls"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/berth-dev/berth/vcluster/pki"
)

// X2: a process that runs for longer than a certificate lives reads the next one from the files that its kubeconfig
// names.
func TestProcessesReachTheHostByFilesThatAreRenewed(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	clients, err := pki.OpenCAWithClock(t.TempDir(), "host", clock)
	if err != nil {
		t.Fatal(err)
	}
	port, err := pki.OpenCA(t.TempDir(), "berth")
	if err != nil {
		t.Fatal(err)
	}
	files := hostFiles{t.TempDir()}
	read := func(server string) string {
		t.Helper()
		if err := files.renew(server, clients, port); err != nil {
			t.Fatal(err)
		}
		config, err := clientcmd.BuildConfigFromFlags("", files.kubeconfig())
		if err != nil {
			t.Fatal(err)
		}
		if config.Host != server || config.CertFile == "" || config.CertData != nil || string(config.CAData) != string(port.PEM()) {
			t.Errorf("the kubeconfig leads to %s, by certificate %q", config.Host, config.CertFile)
		}
		pair, err := tls.LoadX509KeyPair(config.CertFile, config.KeyFile)
		if err != nil {
			t.Fatal(err)
		}
		return string(pair.Certificate[0])
	}
	first := read("https://127.0.0.1:1/spaces/system")
	if read("https://127.0.0.1:2/spaces/system") != first {
		t.Error("a new certificate is renewed")
	}
	clock.SetTime(clock.Now().Add(13 * time.Hour))
	if read("https://127.0.0.1:2/spaces/system") == first {
		t.Error("a certificate past half of its life is not renewed")
	}
}

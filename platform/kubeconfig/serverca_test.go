// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeconfig_test

import (
	"bytes"
	"testing"

	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/kubeconfig"
	"github.com/berth-dev/berth/vcluster/pki"
)

// X2: kubeconfigs trust the CA of the endpoint's certificate besides Berth's own, which is that of port forwards to localhost, or
// the CAs of clients' systems.
func TestKubeconfigsTrustTheEndpointsCertificate(t *testing.T) {
	dir := t.TempDir()
	port, err := pki.OpenCA(datadir.PortKeys(dir), datadir.PortCA)
	if err != nil {
		t.Fatal(err)
	}
	company, err := pki.OpenCA(t.TempDir(), "company")
	if err != nil {
		t.Fatal(err)
	}
	for _, step := range []struct {
		what   string
		issuer []byte
		own    bool
		want   []byte
	}{
		{"Berth's own", nil, true, port.PEM()},
		{"a company's", company.PEM(), false, append(bytes.Clone(port.PEM()), company.PEM()...)},
		{"the same", company.PEM(), false, append(bytes.Clone(port.PEM()), company.PEM()...)},
		{"a public one", nil, false, nil},
		{"Berth's own again", nil, true, port.PEM()},
	} {
		if err := kubeconfig.KeepServerCA(dir, step.issuer, step.own); err != nil {
			t.Fatal(err)
		}
		if got, err := kubeconfig.ServerCA(dir, port); err != nil || !bytes.Equal(got, step.want) {
			t.Errorf("with the certificate of %s, kubeconfigs trust\n%s(%v), want\n%s", step.what, got, err, step.want)
		}
	}
}

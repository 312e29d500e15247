// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"bytes"
	"path/filepath"
	"testing"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/berth-dev/berth/vcluster/pki"
)

// X2: Argo CD has a certificate of its own, which stays until it has to be renewed, leads where the admin's does, and is another one
// when the space has another CA.
func TestArgoCDsCertificateIsKeptWhileItIsGood(t *testing.T) {
	dir := t.TempDir()
	clients, err := pki.OpenCA(filepath.Join(dir, "pki"), pki.SpaceCA("a"))
	if err != nil {
		t.Fatal(err)
	}
	pair, err := clients.Client(AdminUser, []string{AdminGroup})
	if err != nil {
		t.Fatal(err)
	}
	issue := func(server string, clients *pki.CA) []byte {
		t.Helper()
		admins, err := pki.Kubeconfig("a", server, []byte("ca"), AdminUser, pair)
		if err != nil {
			t.Fatal(err)
		}
		own, err := argoCDKubeconfig(filepath.Join(dir, argoCDFile), admins, clients, []byte("ca"))
		if err != nil {
			t.Fatal(err)
		}
		return own
	}
	certificate := func(kubeconfig []byte) []byte {
		t.Helper()
		config, err := clientcmd.Load(kubeconfig)
		if err != nil {
			t.Fatal(err)
		}
		return config.AuthInfos[ArgoCDUser].ClientCertificateData
	}
	first := issue("https://one", clients)
	if !bytes.Equal(first, issue("https://one", clients)) {
		t.Error("it is issued again though it is good")
	}
	moved := issue("https://two", clients)
	if config, err := clientcmd.Load(moved); err != nil || config.Clusters["a"].Server != "https://two" || !bytes.Equal(certificate(first), certificate(moved)) {
		t.Errorf("when Berth has another URL, it leads to %v (%v)", config.Clusters["a"], err)
	}
	if err := clients.Rotate(); err != nil {
		t.Fatal(err)
	}
	if rotated := certificate(issue("https://two", clients)); bytes.Equal(certificate(moved), rotated) || !clients.Fresh(rotated) {
		t.Error("a certificate that was revoked stays")
	}
}

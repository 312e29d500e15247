// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	certutil "k8s.io/client-go/util/cert"
)

// clientRenewal is when a kubeconfig's certificate is renewed, as a fraction of
// its life: who copies the file has the rest.
const clientRenewal = 0.5

// Kubeconfig returns a kubeconfig file that refers to no other file. Cluster is
// the name that its cluster and context bear; server is the API's URL, and
// serverCA the PEM bundle that verifies it.
func Kubeconfig(cluster, server string, serverCA []byte, user string, client Pair) ([]byte, error) {
	c := clientcmdapi.NewConfig()
	c.Clusters[cluster] = &clientcmdapi.Cluster{Server: server, CertificateAuthorityData: serverCA}
	c.AuthInfos[user] = &clientcmdapi.AuthInfo{ClientCertificateData: client.Cert, ClientKeyData: client.Key}
	c.Contexts[cluster] = &clientcmdapi.Context{Cluster: cluster, AuthInfo: user}
	c.CurrentContext = cluster
	data, err := clientcmd.Write(*c)
	if err != nil {
		return nil, fmt.Errorf("encode kubeconfig of %s: %w", cluster, err)
	}
	return data, nil
}

// RenewKubeconfig returns a kubeconfig that [Kubeconfig] made, for the same user
// and groups, with a certificate that clients issues if its own is past half of
// its life, of an authority that is not trusted, or in system:masters, of which
// Berth made admins before there was [AdminGroup], and with serverCA. It leads to
// server, or to where it did if that is empty. What it returns is old itself if
// that is as it should be.
func RenewKubeconfig(old []byte, server string, clients *CA, serverCA []byte) ([]byte, error) {
	c, err := clientcmd.Load(old)
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	context := c.Contexts[c.CurrentContext]
	if context == nil || c.Clusters[context.Cluster] == nil || c.AuthInfos[context.AuthInfo] == nil {
		return nil, errors.New("read kubeconfig: it has no current context; remove the file and start berth again")
	}
	cluster, kept := c.Clusters[context.Cluster], c.AuthInfos[context.AuthInfo]
	certs, err := certutil.ParseCertsPEM(kept.ClientCertificateData)
	if err != nil {
		return nil, fmt.Errorf("read the certificate of %s in kubeconfig: %w", context.AuthInfo, err)
	}
	if server == "" {
		server = cluster.Server
	}
	client := Pair{Cert: kept.ClientCertificateData, Key: kept.ClientKeyData}
	groups := slices.Clone(certs[0].Subject.Organization)
	masters := slices.Index(groups, user.SystemPrivilegedGroup)
	if masters >= 0 {
		groups[masters] = AdminGroup
	}
	if masters >= 0 || !clients.Fresh(client.Cert) {
		if client, err = clients.again(certs[0], groups); err != nil {
			return nil, err
		}
	} else if server == cluster.Server && bytes.Equal(cluster.CertificateAuthorityData, serverCA) {
		return old, nil
	}
	return Kubeconfig(context.Cluster, server, serverCA, context.AuthInfo, client)
}

// Fresh reports whether a client's certificate, in PEM, is of the authority and not past half of its life.
func (ca *CA) Fresh(client []byte) bool {
	certs, err := certutil.ParseCertsPEM(client)
	if err != nil {
		return false
	}
	verify := ca.Verify(x509.ExtKeyUsageClientAuth)
	_, err = certs[0].Verify(verify)
	return err == nil && verify.CurrentTime.Before(after(clientRenewal, certs[0]))
}

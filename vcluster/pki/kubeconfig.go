// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pki

import (
	"fmt"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

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

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/vcluster/pki"
)

const (
	// ArgoCDUser is the user of Argo CD's certificates. It is in [AdminGroup].
	ArgoCDUser = "argocd"
	// suffixCluster is the suffix of the name of a space's Secret for Argo CD.
	suffixCluster = "-argocd-cluster"
	// argoCDFile is the file with Argo CD's kubeconfig, in the directory of a space.
	argoCDFile = "argocd.kubeconfig"
)

// Clusters are the Secrets by which Argo CD recognizes the spaces as clusters. They are written and deleted like
// [Secrets].
type Clusters struct{ secrets *Secrets }

// OpenClusters returns the Secrets of a platform in Argo CD's namespace on a host. If namespace is empty, it returns
// nil, whose methods do nothing.
func OpenClusters(host *rest.Config, namespace, platform string) (*Clusters, error) {
	secrets, err := OpenSecrets(host, namespace, platform)
	if err != nil || secrets == nil {
		return nil, err
	}
	secrets.suffix, secrets.labels = suffixCluster, map[string]string{"argocd.argoproj.io/secret-type": "cluster"}
	return &Clusters{secrets}, nil
}

// Write writes the Secret of a space, with a certificate that has been renewed if necessary. Its server is that of the
// space's admin kubeconfig, and it trusts serverCA.
func (c *Clusters) Write(ctx context.Context, dataDir, space string, admins, serverCA []byte) error {
	if c == nil {
		return nil
	}
	clients, err := OpenClientCA(dataDir, space)
	if err != nil {
		return err
	}
	own, err := argoCDKubeconfig(filepath.Join(datadir.Space(dataDir, space), argoCDFile), admins, clients, serverCA)
	if err != nil {
		return err
	}
	data, err := clusterData(space, own)
	if err != nil {
		return err
	}
	return c.secrets.write(ctx, space, data)
}

// Remove deletes the Secret of a space, if it belongs to the space.
func (c *Clusters) Remove(ctx context.Context, space string) error {
	if c == nil {
		return nil
	}
	return c.secrets.Remove(ctx, space)
}

// argoCDKubeconfig returns a kubeconfig for Argo CD with the server of another kubeconfig, and a certificate that has
// been renewed if necessary. It keeps the certificate in a file, because Berth does not read the Secret.
func argoCDKubeconfig(path string, admins []byte, clients *pki.CA, serverCA []byte) ([]byte, error) {
	name, admin, err := currentContext(admins)
	if err != nil {
		return nil, err
	}
	server := admin.Clusters[name].Server
	old, err := os.ReadFile(path)
	var own []byte
	switch {
	case err == nil:
		own, err = pki.RenewKubeconfig(old, server, clients, serverCA)
	case errors.Is(err, fs.ErrNotExist):
		var client pki.Pair
		if client, err = clients.Client(ArgoCDUser, []string{AdminGroup}); err == nil {
			own, err = pki.Kubeconfig(name, server, serverCA, ArgoCDUser, client)
		}
	}
	if err != nil {
		return nil, fmt.Errorf("issue a certificate for Argo CD: %w", err)
	}
	if string(own) != string(old) {
		if err := pki.WriteFile(path, own); err != nil {
			return nil, fmt.Errorf("write the certificate of Argo CD: %w", err)
		}
	}
	return own, nil
}

// currentContext parses a kubeconfig, and returns the name of its current cluster.
func currentContext(kubeconfig []byte) (cluster string, config *clientcmdapi.Config, err error) {
	if config, err = clientcmd.Load(kubeconfig); err != nil {
		return "", nil, fmt.Errorf("read kubeconfig: %w", err)
	}
	current := config.Contexts[config.CurrentContext]
	if current == nil || config.Clusters[current.Cluster] == nil || config.AuthInfos[current.AuthInfo] == nil {
		return "", nil, errors.New("read kubeconfig: it has no current context; remove the file and start berth again")
	}
	return current.Cluster, config, nil
}

// clusterData returns the data of a cluster Secret; see "Declarative Setup" in Argo CD's documentation.
func clusterData(space string, kubeconfig []byte) (map[string][]byte, error) {
	type tlsClientConfig struct {
		CAData   []byte `json:"caData"`
		CertData []byte `json:"certData"`
		KeyData  []byte `json:"keyData"`
	}
	name, config, err := currentContext(kubeconfig)
	if err != nil {
		return nil, err
	}
	user := config.AuthInfos[config.Contexts[config.CurrentContext].AuthInfo]
	settings, err := json.Marshal(map[string]tlsClientConfig{
		"tlsClientConfig": {CAData: config.Clusters[name].CertificateAuthorityData, CertData: user.ClientCertificateData, KeyData: user.ClientKeyData},
	})
	if err != nil {
		return nil, err
	}
	return map[string][]byte{"name": []byte(space), "server": []byte(config.Clusters[name].Server), "config": settings}, nil
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package login

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	clientauthenticationv1 "k8s.io/client-go/pkg/apis/clientauthentication/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/berth-dev/berth/internal/fielderror"
)

// Server is where the kubeconfig leads.
type Server struct {
	// URL is that of Berth, or of one of its spaces. CA has the CAs of its certificate, in PEM; those of the system if it is empty.
	URL string
	CA  []byte
}

// Complete adds the path of a space, if there is one, and rejects invalid values. The error is a [*fielderror.Error].
func (s *Server) Complete(space string) error {
	s.URL = strings.TrimSuffix(s.URL, "/")
	if err := secure(s.URL); err != nil {
		return fielderror.New("server", s.URL, "%w", err)
	}
	if space != "" {
		s.URL += "/spaces/" + url.PathEscape(space)
	}
	return nil
}

// Exec is the command of this program that prints a token.
type Exec struct {
	Command string
	Args    []string
}

// WriteKubeconfig writes a context with a cluster and a user of its name, and makes it the current one. path is a file; if it is empty, it is the
// one that kubectl uses. It returns the path.
func WriteKubeconfig(path, name string, server Server, exec Exec) (string, error) {
	access, config, err := openKubeconfig(path)
	if err != nil {
		return "", err
	}
	cluster := clientcmdapi.NewCluster()
	cluster.Server, cluster.CertificateAuthorityData = server.URL, server.CA
	user := clientcmdapi.NewAuthInfo()
	user.Exec = &clientcmdapi.ExecConfig{
		APIVersion: clientauthenticationv1.SchemeGroupVersion.String(), Command: exec.Command, Args: exec.Args, InteractiveMode: clientcmdapi.NeverExecInteractiveMode,
		InstallHint: "The command berth was moved or removed. Install it, and log in again: berth login",
	}
	entry := clientcmdapi.NewContext()
	if before := config.Contexts[name]; before != nil {
		entry.Namespace = before.Namespace
	}
	entry.Cluster, entry.AuthInfo = name, name
	config.Clusters[name], config.AuthInfos[name], config.Contexts[name], config.CurrentContext = cluster, user, entry, name
	if err := clientcmd.ModifyConfig(access, *config, true); err != nil {
		return "", fmt.Errorf("write the kubeconfig: %w", err)
	}
	return access.GetDefaultFilename(), nil
}

// ReadServer returns where a context leads that [WriteKubeconfig] has written; nil if there is none.
func ReadServer(path, name string) (*Server, error) {
	_, config, err := openKubeconfig(path)
	if err != nil {
		return nil, err
	}
	of := config.Contexts[name]
	if of == nil || config.Clusters[of.Cluster] == nil || config.AuthInfos[of.AuthInfo] == nil {
		return nil, nil
	}
	exec := config.AuthInfos[of.AuthInfo].Exec
	if exec == nil || len(exec.Args) < 2 || exec.Args[0] != "login" || exec.Args[1] != "token" {
		return nil, nil
	}
	return &Server{URL: config.Clusters[of.Cluster].Server, CA: config.Clusters[of.Cluster].CertificateAuthorityData}, nil
}

func openKubeconfig(path string) (*clientcmd.PathOptions, *clientcmdapi.Config, error) {
	access := clientcmd.NewDefaultPathOptions()
	access.LoadingRules.ExplicitPath = path
	config, err := access.GetStartingConfig()
	if err != nil {
		return nil, nil, fmt.Errorf("read the kubeconfig: %w", err)
	}
	return access, config, nil
}

// Credential is what kubectl reads from the command that prints a token.
func (t *Tokens) Credential() *clientauthenticationv1.ExecCredential {
	expires := metav1.NewTime(t.Expires)
	return &clientauthenticationv1.ExecCredential{
		TypeMeta: metav1.TypeMeta{APIVersion: clientauthenticationv1.SchemeGroupVersion.String(), Kind: "ExecCredential"},
		Status:   &clientauthenticationv1.ExecCredentialStatus{Token: t.IDToken, ExpirationTimestamp: &expires},
	}
}

// WhoAmI returns the user and the tenant that a token is of, as the server says.
func (s *Server) WhoAmI(ctx context.Context, t *Tokens) (user, tenant string, err error) {
	config := &rest.Config{Host: s.URL, BearerToken: t.IDToken, TLSClientConfig: rest.TLSClientConfig{CAData: s.CA}, Timeout: providerTimeout}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", "", err
	}
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		return "", "", err
	}
	tenants := review.Status.UserInfo.Extra["berth.dev/tenant"]
	if len(tenants) == 0 {
		return "", "", errors.New("the server is not Berth, or it knows no OpenID Connect providers")
	}
	return review.Status.UserInfo.Username, tenants[0], nil
}

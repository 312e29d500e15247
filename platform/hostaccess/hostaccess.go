// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostaccess gives the processes of dedicated spaces access to the host.
package hostaccess

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/vcluster/pki"
)

// tokenLifetime is how long a token of a space's account lives: what was stolen with a dedicated space's process is
// of use for that long. It is renewed at half of it.
const tokenLifetime = time.Hour

// Files of a directory by which the process of a dedicated space reaches the host: a kubeconfig, and the token that it
// names, which clients read anew while they run.
const (
	KubeconfigFile = "host.kubeconfig"
	TokenFile      = "host.token"
	ServingCAFile  = "serving-ca.crt"
)

// Access gives the processes of dedicated spaces access to the host: to each as the account of its own space, which
// reaches only the host namespace of that space. It is safe for concurrent use.
type Access struct {
	host    client.Client
	cluster func() (*clientcmdapi.Cluster, error)
	clock   clock.PassiveClock
	tokens  sync.Map // by space: the last one, a issued
}

// issued is a token of a space's account, and when it is to be renewed.
type issued struct {
	token string
	due   time.Time
}

// New returns the access by a client of the host that may request tokens of the spaces' accounts. cluster returns the
// address of the host, and the CA that it is verified by.
func New(host client.Client, cluster func() (*clientcmdapi.Cluster, error), clock clock.PassiveClock) *Access {
	return &Access{host: host, cluster: cluster, clock: clock}
}

// Token returns a token of a space's account: the last one, unless that is to be renewed.
func (a *Access) Token(ctx context.Context, space string) (string, error) {
	if last, has := a.tokens.Load(space); has && !a.IsDue(space) {
		return last.(issued).token, nil
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: translate.Space{Name: space}.HostNamespace(), Name: syncer.ServiceAccount}}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To(int64(tokenLifetime / time.Second))}}
	now := a.clock.Now().Round(0)
	if err := a.host.SubResource("token").Create(ctx, account, request); err != nil {
		return "", fmt.Errorf("request a token of the account of space %s: %w", space, err)
	}
	a.tokens.Store(space, issued{request.Status.Token, now.Add(request.Status.ExpirationTimestamp.Sub(now) / 2)})
	return request.Status.Token, nil
}

// LastToken returns the last token of a space's account, even if it is to be renewed or has expired, or the first one.
func (a *Access) LastToken(ctx context.Context, space string) (string, error) {
	if last, has := a.tokens.Load(space); has && last.(issued).token != "" {
		return last.(issued).token, nil
	}
	return a.Token(ctx, space)
}

// IsDue reports whether the last token of a space is to be renewed.
func (a *Access) IsDue(space string) bool {
	last, has := a.tokens.Load(space)
	return has && a.clock.Now().Round(0).After(last.(issued).due)
}

// Expire has the token of a space be renewed: it is of an account that may be gone.
func (a *Access) Expire(space string) {
	if _, has := a.tokens.Load(space); has {
		a.tokens.Store(space, issued{})
	}
}

// Forget forgets the token of a space that is gone.
func (a *Access) Forget(space string) { a.tokens.Delete(space) }

// Kubeconfig leads to the host, with the token in a file beside it.
func (a *Access) Kubeconfig() ([]byte, error) {
	cluster, err := a.cluster()
	if err != nil {
		return nil, err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters[datadir.HostName] = cluster
	config.AuthInfos[datadir.HostName] = &clientcmdapi.AuthInfo{TokenFile: TokenFile}
	config.Contexts[datadir.HostName] = &clientcmdapi.Context{Cluster: datadir.HostName, AuthInfo: datadir.HostName}
	config.CurrentContext = datadir.HostName
	data, err := clientcmd.Write(*config)
	if err != nil {
		return nil, fmt.Errorf("write a kubeconfig of the host: %w", err)
	}
	return data, nil
}

// Write writes the files for the process of a space.
func (a *Access) Write(ctx context.Context, space, dir string) error {
	config, err := a.Kubeconfig()
	if err == nil {
		err = pki.WriteFile(filepath.Join(dir, KubeconfigFile), config)
	}
	if err == nil {
		err = a.Renew(ctx, space, dir)
	}
	if err != nil {
		return fmt.Errorf("give space %s access to the host: %w", space, err)
	}
	return nil
}

// Renew writes a token that is good.
func (a *Access) Renew(ctx context.Context, space, dir string) error {
	token, err := a.Token(ctx, space)
	if err != nil {
		return err
	}
	return pki.WriteFile(filepath.Join(dir, TokenFile), []byte(token))
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package accessreview asks a webhook of the platform's admin whether a request in a space is allowed, where neither the space's tenant nor
// RBAC says so (A7). Package vcluster asks it, and the processes of a platform make one [Webhook] each.
//
// A tenant can make any number of such requests, of any users, so that each space has a cache and a limit of its own, and all have a
// common limit. What can't be asked is not allowed.
package accessreview

import (
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	authorizationcel "k8s.io/apiserver/pkg/authorization/cel"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook"
	"k8s.io/apiserver/plugin/pkg/authorizer/webhook/metrics"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/berth-dev/berth/internal/askwebhook"
	"github.com/berth-dev/berth/internal/fielderror"
)

// Config configures the webhook. The zero value means that there is none.
type Config struct {
	// File is a kubeconfig with the URL of the webhook. [Config.Complete] reads it.
	File string `json:"-"`
	// Kubeconfig is what the file has, with the files that it names, so that a process on another machine has it all.
	Kubeconfig []byte `json:",omitempty"`
	// Version is that of the SubjectAccessReview: v1 or v1beta1.
	Version string `json:",omitempty"`
	// Allowed and Unallowed are how long the webhook's answers are remembered.
	Allowed, Unallowed time.Duration `json:",omitempty"`
}

// Complete reads the file. The error is a [*fielderror.Error] of the flag with the value.
func (c *Config) Complete() error {
	if c.File == "" {
		return nil
	}
	for flag, ttl := range map[string]time.Duration{"authorized": c.Allowed, "unauthorized": c.Unallowed} {
		if ttl < 0 {
			return fielderror.New("authorization-webhook-cache-"+flag+"-ttl", ttl, "must not be negative")
		}
	}
	data, err := flatten(c.File)
	if err != nil {
		return fielderror.New("authorization-webhook-config-file", c.File, "%w", err)
	}
	c.Kubeconfig = data
	if _, err := Open(*c); err != nil {
		return fielderror.New("authorization-webhook-config-file", c.File, "%w; check --authorization-webhook-version=%s, too", err, c.Version)
	}
	return nil
}

// flatten reads a kubeconfig, and the certificates and keys that it names.
func flatten(file string) ([]byte, error) {
	config, err := clientcmd.LoadFromFile(file)
	if err != nil {
		return nil, err
	}
	for name, user := range config.AuthInfos {
		if user.TokenFile != "" || user.Exec != nil || user.AuthProvider != nil {
			return nil, fmt.Errorf("the user %s has a tokenFile, exec, or auth-provider; write a client certificate or a token, because processes of dedicated spaces get a copy", name)
		}
	}
	if err := clientcmd.ResolveLocalPaths(config); err != nil {
		return nil, err
	}
	if err := clientcmdapi.FlattenConfig(config); err != nil {
		return nil, err
	}
	return clientcmd.Write(*config)
}

// Webhook is the webhook. A nil *Webhook is none. It is safe for concurrent use.
type Webhook struct {
	upstream  authorizer.Authorizer
	ttl       func(authorizer.Decision) time.Duration
	all, rest limit
}

// Open returns the webhook; nil if there is none.
func Open(c Config) (*Webhook, error) {
	if len(c.Kubeconfig) == 0 {
		return nil, nil
	}
	client, err := askwebhook.Parse(c.Kubeconfig, timeout)
	if err != nil {
		return nil, err
	}
	upstream, err := webhook.New(client, c.Version, 0, 0, wait.Backoff{Steps: 1}, authorizer.DecisionNoOpinion, nil, "berth",
		metrics.NoopAuthorizerMetrics{}, authorizationcel.NewDefaultCompiler())
	if err != nil {
		return nil, errors.Join(errors.New("make a client of the webhook"), err)
	}
	return newWebhook(upstream, c.Allowed, c.Unallowed), nil
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// Config is a kubeconfig with one context.
type Config struct{ *clientcmdapi.Config }

// ContextName returns the name of the context of a space, or of an owner in it.
func ContextName(space, owner string) string {
	if owner == "" {
		return "berth_" + space
	}
	return "berth_" + space + "_" + owner
}

// ParseConfig reads a kubeconfig, and returns its current context under a new name. It takes credentials that are in the
// kubeconfig itself only: one that runs a program or reads a file is not Berth's, and would act on this machine.
func ParseConfig(data []byte, name string) (*Config, error) {
	all, err := clientcmd.Load(data)
	if err != nil {
		return nil, fmt.Errorf("read the kubeconfig of the space: %w", err)
	}
	current := all.Contexts[all.CurrentContext]
	if current == nil || all.Clusters[current.Cluster] == nil || all.AuthInfos[current.AuthInfo] == nil {
		return nil, errors.New("read the kubeconfig of the space: it has no current context")
	}
	from, user := all.Clusters[current.Cluster], all.AuthInfos[current.AuthInfo]
	cluster := clientcmdapi.NewCluster()
	cluster.Server, cluster.TLSServerName, cluster.CertificateAuthorityData = from.Server, from.TLSServerName, from.CertificateAuthorityData
	who := clientcmdapi.NewAuthInfo()
	who.ClientCertificateData, who.ClientKeyData, who.Token = user.ClientCertificateData, user.ClientKeyData, user.Token
	if len(who.ClientCertificateData) == 0 && who.Token == "" {
		return nil, errors.New("read the kubeconfig of the space: it has no client certificate and no token; only Berth may write it")
	}
	if server, err := url.Parse(cluster.Server); err != nil || server.Scheme != "https" {
		return nil, fmt.Errorf("read the kubeconfig of the space: server=%s: must begin with https://", cluster.Server)
	}
	context := clientcmdapi.NewContext()
	context.Cluster, context.AuthInfo, context.Namespace = name, name, current.Namespace
	config := clientcmdapi.NewConfig()
	config.Clusters[name], config.AuthInfos[name], config.Contexts[name], config.CurrentContext = cluster, who, context, name
	return &Config{config}, nil
}

func (c *Config) cluster() *clientcmdapi.Cluster { return c.Clusters[c.CurrentContext] }

// Server returns the URL of the space.
func (c *Config) Server() string { return c.cluster().Server }

// REST returns the configuration of a client.
func (c *Config) REST() (*rest.Config, error) {
	config, err := clientcmd.NewDefaultClientConfig(*c.Config, nil).ClientConfig()
	if err != nil {
		return nil, fmt.Errorf("use the kubeconfig of the space: %w", err)
	}
	config.QPS, config.WarningHandler = -1, rest.NoWarnings{}
	return config, nil
}

// address returns the host name and the port of the space's API.
func (c *Config) address() (host string, port int, err error) {
	server, err := url.Parse(c.Server())
	if err != nil {
		return "", 0, fmt.Errorf("server=%s: %w", c.Server(), err)
	}
	if server.Port() == "" {
		return server.Hostname(), 443, nil
	}
	port, err = strconv.Atoi(server.Port())
	return server.Hostname(), port, err
}

// through returns a copy whose server is a port of this machine. The server's certificate is still checked for its own name.
func (c *Config) through(port uint16) (*Config, error) {
	server, err := url.Parse(c.Server())
	if err != nil {
		return nil, fmt.Errorf("server=%s: %w", c.Server(), err)
	}
	forwarded := &Config{c.DeepCopy()}
	if cluster := forwarded.cluster(); cluster.TLSServerName == "" {
		cluster.TLSServerName = server.Hostname()
	}
	server.Host = net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port)))
	forwarded.cluster().Server = server.String()
	return forwarded, nil
}

// Merge adds the context to a kubeconfig file, or to the one that kubectl uses by default, makes it the current one, and returns
// the path of the file. What the file had under the same name is replaced.
func (c *Config) Merge(file string) (string, error) {
	options := clientcmd.NewDefaultPathOptions()
	if file != "" {
		options.LoadingRules.ExplicitPath = file
	}
	all, err := options.GetStartingConfig()
	if err != nil {
		return "", fmt.Errorf("read the kubeconfig to merge into: %w", err)
	}
	name := c.CurrentContext
	all.Clusters[name], all.AuthInfos[name], all.Contexts[name] = c.Clusters[name], c.AuthInfos[name], c.Contexts[name]
	for _, origin := range []*string{&all.Clusters[name].LocationOfOrigin, &all.AuthInfos[name].LocationOfOrigin, &all.Contexts[name].LocationOfOrigin} {
		*origin = options.GetDefaultFilename()
	}
	all.CurrentContext = name
	if err := clientcmd.ModifyConfig(options, *all, false); err != nil {
		return "", fmt.Errorf("write the context %s: %w", name, err)
	}
	return options.GetDefaultFilename(), nil
}

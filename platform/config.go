// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/gateway/audit"
	"github.com/berth-dev/berth/gateway/authn"
	"github.com/berth-dev/berth/internal/fielderror"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/platform/certificate"
	"github.com/berth-dev/berth/platform/manager"
	"github.com/berth-dev/berth/platform/peers"
)

// Config configures a platform. Its functions may be called concurrently.
type Config struct {
	manager.Options
	Host HostConfig

	// Peers make this process a shard of a platform of several processes. The host must be an existing cluster.
	Peers peers.Options
	// Listen is HOST:PORT of the TLS listener that serves all APIs. Advertise is the URL at which clients reach it,
	// https://HOST or https://HOST:PORT. If Advertise is empty, it is the address of Listen.
	Listen, Advertise string
	// Domain is a domain in which each space has a host name, SPACE.DOMAIN, which leads to the address of Listen. It may be empty.
	Domain string
	// TLS are the files of the endpoint's certificate. If they are empty, the platform issues one by its own CA.
	TLS certificate.Paths
	// Clients say by which credentials the platform itself knows clients.
	Clients authn.Files
	// Audit are files that say what is recorded of tenants' requests.
	Audit audit.Files
	// AuthorizationPolicy is a file with policies of package policy. It may be empty.
	AuthorizationPolicy string
	// MetricsListen is HOST:PORT at which metrics and health are served over plain HTTP. If it is empty, they are not
	// served there.
	MetricsListen string
	// Operator runs the operator, which serves Tenant objects, in this process. If the host is an existing cluster, a Lease makes
	// sure that one operator works at a time.
	Operator bool

	// Serving is called once, when requests are served. Started is called once, when all of Spaces have been tried.
	// Each may be nil.
	Serving, Started func(*Platform)
}

// Complete sets defaults, and rejects invalid values. The error is a [*fielderror.Error], or for the specs of spaces
// the aggregate of a [field.ErrorList].
func (c *Config) Complete() error {
	c.Advertise = strings.TrimSuffix(c.Advertise, "/")
	if err := checkAdvertise(c.Advertise); err != nil {
		return fielderror.New("advertise", c.Advertise, "%w", err)
	}
	if err := c.checkDomain(); err != nil {
		return fielderror.New("space-domain", c.Domain, "%w", err)
	}
	if err := c.checkTLS(); err != nil {
		return err
	}
	if err := c.checkDefaultTenant(); err != nil {
		return fielderror.New("default-tenant", c.Clients.DefaultTenant, "%w", err)
	}
	if err := c.Peers.Check(); err != nil {
		return err
	}
	if c.Peers.Enabled() && c.Host.Embedded {
		return fielderror.New("shard", c.Peers.Name, "an embedded host has one process; run shards on an existing cluster")
	}
	c.Shard = c.Peers.Name
	return c.Options.Complete()
}

func (c *Config) checkDomain() error {
	if c.Domain == "" {
		return nil
	}
	if problems := validation.IsDNS1123Subdomain(c.Domain); len(problems) > 0 {
		return fmt.Errorf("%s; write a domain such as berth.example.com", problems[0])
	}
	if u, err := url.Parse(c.Advertise); err == nil {
		if name, below := strings.CutSuffix(u.Hostname(), "."+c.Domain); below && !strings.Contains(name, ".") {
			return fmt.Errorf("the host of --advertise would be that of the space %q; write a domain that it isn't in, such as spaces.%s", name, c.Domain)
		}
	}
	return nil
}

func (c *Config) checkDefaultTenant() error {
	switch name := c.Clients.DefaultTenant; name {
	case "":
		return nil
	case v1alpha1.SystemTenant:
		return errors.New("users without a tenant would reach all spaces; name a tenant with a space")
	default:
		return isolation.CheckSpaceName(name)
	}
}

func (c *Config) checkTLS() error {
	for _, file := range []struct{ field, value string }{{"tls-key-file", c.TLS.Key}, {"tls-ca-file", c.TLS.CA}} {
		if file.value != "" && c.TLS.Cert == "" {
			return fielderror.New(file.field, file.value, "needs --tls-cert-file, too")
		}
	}
	if c.TLS.Cert != "" && c.TLS.Key == "" {
		return fielderror.New("tls-cert-file", c.TLS.Cert, "needs --tls-key-file, too")
	}
	return nil
}

func checkAdvertise(advertise string) error {
	if advertise == "" {
		return nil
	}
	u, err := url.Parse(advertise)
	if err == nil && (u.Scheme != "https" || u.Hostname() == "" || advertise != "https://"+u.Host) {
		err = errors.New("must be https://HOST or https://HOST:PORT")
	}
	return err
}

// Loopback is the server address in kubeconfigs if Listen is all addresses of the machine and Advertise is empty.
const Loopback = "127.0.0.1"

// ListensEverywhere reports whether Listen is all addresses of the machine, so that it does not say which of them
// clients use.
func (c *Config) ListensEverywhere() bool {
	host, _, err := net.SplitHostPort(c.Listen)
	ip := net.ParseIP(host)
	return err != nil || host == "" || ip != nil && ip.IsUnspecified()
}

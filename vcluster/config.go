// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"time"

	"go.opentelemetry.io/otel/trace"
	"k8s.io/apiserver/pkg/admission"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/vcluster/controllers"
	"github.com/berth-dev/berth/vcluster/podaccess"
)

const (
	defaultServiceCIDR = "10.96.0.0/16"

	// minServiceCIDRBits is the least number of host bits of a service range.
	// Upstream ends the process when a range holds fewer than eight addresses.
	minServiceCIDRBits = 3
)

// Config says what one control plane is.
type Config struct {
	// Name is the space's name, a DNS label. It names log lines, the store, the
	// CA and the kubeconfigs' cluster.
	Name string
	// Dir holds the control plane's state: store.db and pki/. It is created
	// with mode 0700 if absent.
	Dir string
	// Endpoint is the URL under which clients reach the API, such as
	// https://127.0.0.1:7443/spaces/demo. It goes into kubeconfigs.
	Endpoint string
	// ServingCA is the PEM bundle that verifies Endpoint. It goes into
	// kubeconfigs and into each namespace's ConfigMap kube-root-ca.crt.
	ServingCA []byte
	// ServiceCIDR is the range of ClusterIPs. Default 10.96.0.0/16.
	ServiceCIDR string
	// KubernetesServiceIP is the ClusterIP of the Service default/kubernetes.
	// It must be inside ServiceCIDR. Default: the first address of the range.
	KubernetesServiceIP net.IP
	// KubernetesServiceServed says that pods reach the API at that address. The
	// service then has endpoints, which say so.
	KubernetesServiceServed bool
	// Controllers names the upstream controllers to run, as in
	// k8s.io/kubernetes/cmd/kube-controller-manager/names. See
	// [SpaceControllers] and [HostControllers]. None if empty.
	Controllers []string
	// ControllersQuiet is how long a controller that has nothing to do any more
	// goes on, before it is stopped until it has. Default 15 seconds.
	ControllersQuiet time.Duration
	// HiddenNodes says that pods run on nodes that are not in this API: the
	// controllers then take any node that a pod names to exist.
	HiddenNodes bool
	// Admission lists plugins that join upstream's default chain, in this
	// order, after upstream's mutating plugins and before ResourceQuota.
	Admission []Admission
	// Pods reaches pods where they run: for their logs, exec, attach and port
	// forwarding, for the proxies of pods and services, for webhooks and for API
	// services, which are then pods of services and nothing else. Default: all these
	// are reached by Dial.
	Pods podaccess.Pods
	// Usage tells what pods use. Default: there is no API metrics.k8s.io, as in a
	// cluster without a metrics server.
	Usage podaccess.Usage
	// Dial reaches what the API's objects name where there is no Pods. Tenants choose the addresses, so it must refuse
	// what they must not reach. Default: nothing can be reached.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Traces gets spans of what the API server does. Default: nothing does.
	Traces trace.TracerProvider
	// Clock tells when certificates end. Default: the system clock.
	Clock clock.PassiveClock
	// StoreBytes is how much the control plane's objects may take, with what is
	// kept of their earlier versions. Default: the account's limit, or without an
	// account [kine.DefaultMaxBytes].
	StoreBytes int64
	// Account counts and bounds what the space takes of the process. Default:
	// nothing is bounded.
	Account *bounds.Account
	// Volume is the file system of the stores of this process. Default: each
	// grows until that is full.
	Volume *kine.Volume
	// Logger is given to whatever logs contextually. Default: klog's own.
	Logger klog.Logger
}

// Admission is a plugin of Berth's own.
type Admission struct {
	// Name is the plugin's name, in the form upstream's have. It must differ
	// from all of theirs.
	Name string
	// New makes the plugin. It is called once for each start, so a plugin may
	// keep state of one run. A plugin may implement upstream's initializer
	// interfaces (WantsExternalKubeInformerFactory and the like).
	New func() (admission.Interface, error)
}

// SpaceControllers returns the controllers of a space: what works on a tenant's
// objects without nodes. Pods are run, and volumes bound, on the host.
func SpaceControllers() []string { return controllers.ForSpaces() }

// HostControllers returns the controllers of a cluster that has nodes of its
// own, with one that binds volumes and without those that need a cloud, or give
// nodes their addresses.
func HostControllers() []string { return controllers.ForHosts() }

// complete checks c and returns it with defaults filled in.
//
// Values that upstream would end the process for are refused here.
func (c Config) complete() (Config, error) {
	if c.Name == "" {
		return c, errors.New("name is empty")
	}
	if c.Dir == "" {
		return c, errors.New("dir is empty")
	}
	endpoint, err := url.Parse(c.Endpoint)
	if err != nil {
		return c, fmt.Errorf("parse endpoint: %w", err)
	}
	if endpoint.Scheme != "https" || endpoint.Host == "" {
		return c, fmt.Errorf("endpoint %q is not an https URL with a host", c.Endpoint)
	}
	if _, err := certutil.ParseCertsPEM(c.ServingCA); err != nil {
		return c, fmt.Errorf("parse serving CA: %w", err)
	}
	if c.ServiceCIDR == "" {
		c.ServiceCIDR = defaultServiceCIDR
	}
	cidr, err := netip.ParsePrefix(c.ServiceCIDR)
	if err != nil {
		return c, fmt.Errorf("parse service range: %w", err)
	}
	if cidr != cidr.Masked() {
		return c, fmt.Errorf("service range %s has host bits set, want %s", cidr, cidr.Masked())
	}
	if cidr.Addr().BitLen()-cidr.Bits() < minServiceCIDRBits {
		return c, fmt.Errorf("service range %s is too small: it needs at least %d addresses", cidr, 1<<minServiceCIDRBits)
	}
	if c.KubernetesServiceIP != nil {
		ip, ok := netip.AddrFromSlice(c.KubernetesServiceIP)
		if !ok || !cidr.Contains(ip.Unmap()) {
			return c, fmt.Errorf("kubernetes service IP %s is not in the service range %s", c.KubernetesServiceIP, cidr)
		}
	}
	if c.StoreBytes == 0 && c.Account != nil {
		c.StoreBytes = c.Account.Limit(bounds.StoreBytes)
	}
	if c.Dial == nil {
		c.Dial = podaccess.RefuseDial
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	if c.Logger.GetSink() == nil {
		c.Logger = klog.Background().WithValues("space", c.Name)
	}
	return c, nil
}

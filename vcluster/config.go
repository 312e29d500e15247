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
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	certutil "k8s.io/client-go/util/cert"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/quota"
	"github.com/berth-dev/berth/vcluster/controllers"
	"github.com/berth-dev/berth/vcluster/podaccess"
)

const (
	defaultServiceCIDR = "10.96.0.0/16"

	// minServiceCIDRBits is the minimum number of host bits of a service range. Upstream ends the process if a range
	// has fewer than eight addresses.
	minServiceCIDRBits = 3
)

// Config configures one control plane.
type Config struct {
	// Name is the name of the space, a DNS label. It is used in log lines, the store, the CA, and kubeconfigs.
	Name string
	// Dir is the directory of the control plane's state: store.db, unless Server has it, and pki/. If it does not exist, it is created with
	// mode 0700.
	Dir string
	// Server is the database server that has the store, if it is not a file.
	Server *kine.Server
	// Replica, if set, follows what is written to a store that is a file.
	Replica kine.Replica
	// Endpoint is the URL at which clients reach the API, such as https://127.0.0.1:7443/spaces/demo. It is written
	// into kubeconfigs.
	Endpoint string
	// ServingCA is the PEM bundle that verifies Endpoint. It is written into kubeconfigs, and into the ConfigMap
	// kube-root-ca.crt of each namespace.
	ServingCA []byte
	// ServiceCIDR is the range of ClusterIPs. Default 10.96.0.0/16.
	ServiceCIDR string
	// KubernetesServiceIP is the ClusterIP of the Service default/kubernetes.
	// It must be inside ServiceCIDR. Default: the first address of the range.
	KubernetesServiceIP net.IP
	// KubernetesServiceServed means that pods reach the API at that address, so that the service has endpoints.
	KubernetesServiceServed bool
	// Controllers are the names of the upstream controllers to run, as in
	// k8s.io/kubernetes/cmd/kube-controller-manager/names. See [SpaceControllers] and [HostControllers]. If it is
	// empty, none run.
	Controllers []string
	// ControllersQuiet is how long a controller without work keeps running before it is stopped until it has work.
	// Default: 15 seconds.
	ControllersQuiet time.Duration
	// HiddenNodes means that the nodes of pods are not in this API. The controllers then assume that each node that a
	// pod names exists.
	HiddenNodes bool
	// Admission are plugins that are added to upstream's default chain, in this order, after upstream's mutating
	// plugins and before ResourceQuota.
	Admission []Admission
	// Access is what the space enforces of its tenant. It follows changes without a restart. Nil means nothing.
	Access *access.Source
	// Granted has rights of users whom the platform knows, if Access is nil. It may be nil, too.
	Granted *access.Source
	// Definitions are the CustomResourceDefinitions that the platform shares with the space, with those that it forces because it syncs
	// their objects; see [definitions.Source.WithSynced]. They follow changes without a restart. Nil means that it never shares one.
	Definitions *definitions.Source
	// AfterRBAC, if set, decides on what neither Access nor RBAC allows. It needs Access.
	AfterRBAC authorizer.Authorizer
	// Pods connects to pods where they run: for logs, exec, attach, and port forwarding; for the proxies of pods and
	// services; and for webhooks and API services, which must then be pods of services. If it is nil, all of these use
	// Dial.
	Pods podaccess.Pods
	// Usage returns what pods use. If it is nil, there is no API metrics.k8s.io, as in a cluster without a metrics
	// server.
	Usage podaccess.Usage
	// Dial connects to addresses in the API's objects if Pods is nil. Tenants choose these addresses, so Dial must
	// reject those that they may not reach. If it is nil, nothing can be reached.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	// Traces, if set, gets the spans of the API server.
	Traces trace.TracerProvider
	// Clock decides when certificates expire. Default: the system clock.
	Clock clock.PassiveClock
	// StoreBytes is the size limit of the store, including earlier versions of objects. Default: the account's limit,
	// or without an account [kine.DefaultMaxBytes].
	StoreBytes int64
	// Quota holds the space to the quota of its tenant. If it is nil, nothing does in this process. HostLimits are those of the
	// LimitRange that sets the defaults of the space's pods on the host.
	Quota      *quota.Gate
	HostLimits []corev1.LimitRangeItem
	// TenantQuota returns what the space may know of the quota of its tenant. If it is nil, there is no API tenancy.berth.dev.
	TenantQuota func(context.Context) (quota.Report, error)
	// Account counts and limits what the space uses of the process. If it is nil, nothing is limited.
	Account *bounds.Account
	// Volume is the file system of this process's stores. If it is nil, each store may grow until the file system is
	// full.
	Volume *kine.Volume
	// Logger is used for contextual logging. Default: klog's own.
	Logger klog.Logger
}

// Admission is an admission plugin of Berth.
type Admission struct {
	// Name is the name of the plugin, in the form of upstream's names, and different from them.
	Name string
	// New returns the plugin. It is called once for each start, so a plugin may have state of one run. A plugin may
	// implement upstream's initializer interfaces (WantsExternalKubeInformerFactory and others).
	New func() (admission.Interface, error)
}

// SpaceControllers returns the controllers of a space: those that work without nodes. Pods run, and volumes are bound,
// on the host.
func SpaceControllers() []string { return controllers.ForSpaces() }

// HostControllers returns the controllers of a cluster with its own nodes: including the one that binds volumes, and
// without those that need a cloud or assign addresses to nodes.
func HostControllers() []string { return controllers.ForHosts() }

// complete validates c, and returns it with defaults.
//
// It rejects values for which upstream would end the process.
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

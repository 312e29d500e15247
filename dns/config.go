// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package dns

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	miekg "github.com/miekg/dns"
	"k8s.io/utils/clock"
)

// DefaultDomain is the domain of a cluster's own names.
const DefaultDomain = "cluster.local"

// Config says what to answer, and how much.
type Config struct {
	Source Source
	// Domain of the spaces' own names. Default: [DefaultDomain].
	Domain string
	// HostDomains are never asked for upstream, nor shown in an answer: the
	// host's own cluster domain, if it is another one than Domain.
	HostDomains []string
	// HostRanges are addresses of the host's, such as its cluster IPs, which are
	// never asked about or shown. Private ranges need not be among them.
	HostRanges []netip.Prefix
	// Upstreams are asked for all other names, in this order: HOST:PORT each. None
	// are asked if it is empty.
	Upstreams []string
	// Limits of each space. Zero means the default.
	Limits Limits
	// Clock for rates and the ages of answers. Default: the system clock.
	Clock  clock.Clock
	Logger logr.Logger
}

// Limits bound what one space can take of the resolver.
type Limits struct {
	Queries     int // a second, in bursts of twice as many
	InFlight    int // queries at once
	Forwards    int // a second, in bursts of twice as many
	Forwarding  int // upstream queries at once
	Cached      int // answers from upstream
	Connections int // by TCP
}

const (
	// ttl is how many seconds an answer of the cluster's own is good for. It is
	// CoreDNS's default: pods come and go.
	ttl = 5
	// udpSize is the largest answer by UDP, whatever the client says it takes: it
	// goes through any network in one piece (DNS flag day 2020).
	udpSize = 1232
	// maxQuery is the longest query that is read. A name has 255 bytes at most.
	maxQuery = 4096

	readTimeout  = 5 * time.Second  // for a query by TCP, from the last answer on
	writeTimeout = 5 * time.Second  // for an answer by TCP
	askTimeout   = 2 * time.Second  // for one upstream
	queryTimeout = 5 * time.Second  // for all there is to a query
	tenantIdle   = 10 * time.Minute // after which a space's cache and rates are forgotten
	maxPerConn   = 1000             // queries on one TCP connection
	maxTotal     = 4096             // TCP connections, and queries by UDP at once, of all spaces
	maxAsking    = 512              // upstream queries at once, of all spaces
	maxRefusals  = 50               // a second, to addresses that are no pod's
	maxChain     = 8                // aliases from one name to the next
	// What one answer is made of. Tenants write endpoints, and choose how many; more
	// than these fit no answer.
	maxAddresses = 512
	maxRecords   = 1024
	maxPointers  = 16   // names of one address
	maxScanned   = 4096 // endpoints of one service that are looked through for those

	maxCachedTTL = 10 * time.Minute
	maxCachedLen = 4096 // bytes of an answer that is worth keeping
)

func (c Config) complete() (Config, error) {
	if c.Source == nil {
		return c, errors.New("serve DNS: no source")
	}
	if c.Domain == "" {
		c.Domain = DefaultDomain
	}
	var domains []string
	for _, d := range append([]string{c.Domain}, c.HostDomains...) {
		if _, ok := miekg.IsDomainName(d); !ok || strings.Trim(d, ".") == "" {
			return c, fmt.Errorf("serve DNS: %q is not a domain name", d)
		}
		domains = append(domains, miekg.CanonicalName(d))
	}
	c.Domain, c.HostDomains = domains[0], domains[1:]
	for _, upstream := range c.Upstreams {
		if _, _, err := net.SplitHostPort(upstream); err != nil {
			return c, fmt.Errorf("serve DNS: upstream %q is not HOST:PORT: %w", upstream, err)
		}
	}
	if c.Clock == nil {
		c.Clock = clock.RealClock{}
	}
	l := &c.Limits
	for limit, standard := range map[*int]int{
		&l.Queries: 1000, &l.InFlight: 64, &l.Forwards: 100, &l.Forwarding: 32, &l.Cached: 256, &l.Connections: 64,
	} {
		if *limit <= 0 {
			*limit = standard
		}
	}
	return c, nil
}

// SystemUpstreams are the resolvers that a resolv.conf names, as HOST:PORT.
func SystemUpstreams(resolvConf string) ([]string, error) {
	config, err := miekg.ClientConfigFromFile(resolvConf)
	if err != nil {
		return nil, fmt.Errorf("read upstream resolvers: %w", err)
	}
	var upstreams []string
	for _, server := range config.Servers {
		upstreams = append(upstreams, net.JoinHostPort(server, config.Port))
	}
	return upstreams, nil
}

// SystemClusterDomains are the domains of a cluster that a resolv.conf searches,
// as it does in a pod: X, if it searches svc.X or NAMESPACE.svc.X. There are none
// if there is no such file.
func SystemClusterDomains(resolvConf string) (domains []string, err error) {
	config, err := miekg.ClientConfigFromFile(resolvConf)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read search domains: %w", err)
	}
	for _, search := range config.Search {
		if _, ok := miekg.IsDomainName(search); !ok {
			continue
		}
		labels := miekg.SplitDomainName(miekg.CanonicalName(search))
		i := slices.Index(labels, "svc")
		if i < 0 || i > 1 || i == len(labels)-1 {
			continue
		}
		if domain := miekg.Fqdn(strings.Join(labels[i+1:], ".")); !slices.Contains(domains, domain) {
			domains = append(domains, domain)
		}
	}
	return domains, nil
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"errors"
	"net/netip"
	"time"

	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/berth-dev/berth/internal/fielderror"
)

// maxSelector is the longest selector that fits into the status of a Shard, in characters.
const maxSelector = 1024

// Options say which shard of its platform a process is. The zero value is of a platform without shards.
type Options struct {
	// Name is the name of the shard, which is unique in the namespace: that of its pod.
	Name string
	// Namespace is the host namespace with the Shard objects, their Leases, and the Secret with the CA.
	Namespace string
	// Address is IP:PORT of this process, at which it serves the other shards.
	Address string
	// Zone is the zone of the machine; "" if it has none, or isn't known.
	Zone string
	// Selector selects the spaces that the shard gets, by their labels; "" if it gets those that no shard selects.
	Selector string
	// DrainTimeout is how long a process that is asked to stop waits at most until its spaces have moved to other shards. If it is 0, they
	// stay, and don't answer until the process is back.
	DrainTimeout time.Duration
}

// Enabled reports whether the platform has shards.
func (o *Options) Enabled() bool { return o.Name != "" }

// Check fails with a [fielderror.Error] that names the flag.
func (o *Options) Check() error {
	if !o.Enabled() {
		if o.Namespace != "" || o.Address != "" || o.Selector != "" || o.Zone != "" {
			return fielderror.New("shard", "", "--shard-namespace, --shard-address, --shard-zone, and --shard-space-selector need the name of the shard, too")
		}
		return nil
	}
	if problems := validation.IsDNS1123Label(o.Name); len(problems) > 0 {
		return fielderror.New("shard", o.Name, "%s", problems[0])
	}
	if problems := validation.IsDNS1123Label(o.Namespace); len(problems) > 0 {
		return fielderror.New("shard-namespace", o.Namespace, "must be the name of a host namespace: %s", problems[0])
	}
	if _, err := labels.Parse(o.Selector); err != nil || len(o.Selector) > maxSelector {
		return fielderror.New("shard-space-selector", o.Selector, "must be a label selector of at most %d characters, such as stage=canary: %w", maxSelector, err)
	}
	if o.DrainTimeout < 0 {
		return fielderror.New("shard-drain-timeout", o.DrainTimeout, "must be a duration, or 0 to leave the spaces where they are")
	}
	address, err := netip.ParseAddrPort(o.Address)
	if err == nil && (address.Addr().IsUnspecified() || address.Addr().IsMulticast() || address.Port() == 0) {
		err = errors.New("nobody reaches this address")
	}
	if err != nil {
		return fielderror.New("shard-address", o.Address, "must be IP:PORT of this machine or pod that the other shards reach: %w", err)
	}
	return nil
}

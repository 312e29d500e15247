// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package podaccess

import (
	"context"
	"errors"
	"fmt"
	"net"

	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/server/egressselector"
	"k8s.io/kubernetes/pkg/controlplane"

	"github.com/berth-dev/berth/vcluster/podhttp"
)

// An API server connects to what its objects name: webhooks, API services, pods
// and services by proxy, kubelets. Whoever writes those objects would reach,
// from this process, its loopback interface, the host's services and a cloud's
// metadata. So each way out leads to pods of the space, by Config.Pods, or goes
// through Config.Dial.

var errUnreachable = errors.New("this API server reaches no network")

// RefuseDial is the Dial of a control plane that was given none.
func RefuseDial(_ context.Context, _, address string) (net.Conn, error) {
	return nil, fmt.Errorf("connect to %s: %w", address, errUnreachable)
}

// ReachBy makes the proxies and the kubelet client of core use dial.
func ReachBy(core *controlplane.Config, dial utilnet.DialFunc) {
	core.ControlPlane.ProxyTransport.DialContext = dial
	core.ControlPlane.ProxyTransport.Proxy = nil
	podhttp.Bound(core.ControlPlane.ProxyTransport)
	core.KubeletClientConfig.Lookup = func(egressselector.NetworkContext) (utilnet.DialFunc, error) { return dial, nil }
}

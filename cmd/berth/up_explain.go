// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"path/filepath"

	"github.com/berth-dev/berth/platform"
	"github.com/berth-dev/berth/platform/datadir"
)

// explainUse prints how to use the running spaces.
func explainUse(out io.Writer, c *platform.Config, endpoint func(space string) string) {
	for _, space := range c.Spaces {
		fmt.Fprintf(out, "\nSpace %s serves at %s", space.Name, endpoint(space.Name))
	}
	if len(c.Spaces) > 0 {
		fmt.Fprintf(out, `

  export KUBECONFIG=%s
  kubectl create deployment web --image=nginx --replicas=3
  kubectl get pods -o wide
`, datadir.Kubeconfig(c.DataDir, c.Spaces[0].Name))
	}
	if c.Host.Embedded {
		fmt.Fprintf(out, `
To create more spaces, and to see the pods of all spaces, use the host cluster as its admin:

  export KUBECONFIG=%s
  kubectl apply -f examples/space.yaml
  kubectl get spaces,pods -A
`, datadir.Kubeconfig(c.DataDir, datadir.HostName))
	}
	if c.ListensEverywhere() {
		fmt.Fprintf(out, `
--listen=%s listens on all addresses, but kubeconfigs and the server certificate
contain %s, so only clients on this machine can use them. For other clients, set
--listen to the address or host name by which they reach this machine.
`, c.Listen, platform.Loopback)
	}
	fmt.Fprintf(out, "\nLog: %s. Stop with Ctrl-C. When you start again, all spaces continue.\n", filepath.Join(c.DataDir, logFile))
}

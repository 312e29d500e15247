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

// explainUse prints what a person at a terminal can do with the spaces that now run.
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
As the platform's admin, create more spaces, and see them with all of their pods:

  export KUBECONFIG=%s
  kubectl apply -f examples/space.yaml
  kubectl get spaces,pods -A
`, datadir.Kubeconfig(c.DataDir, datadir.HostName))
	}
	if c.ListensEverywhere() {
		fmt.Fprintf(out, `
--listen=%s: the port is open on all addresses, but kubeconfigs lead to %s,
and the certificate is good on this machine only. For clients elsewhere, name in
--listen the address or host name by which they reach it.
`, c.Listen, platform.Loopback)
	}
	fmt.Fprintf(out, "\nLog: %s. Stop with Ctrl-C; start again to go on.\n", filepath.Join(c.DataDir, logFile))
}

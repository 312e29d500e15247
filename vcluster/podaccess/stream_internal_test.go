// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package podaccess

import (
	"testing"

	api "k8s.io/kubernetes/pkg/apis/core"
)

// S5: protocols that ask for ports later are served whatever ports the query has;
// and what they are told then names the pod.
func TestABadPortOfAQueryOnlyTakesThePorts(t *testing.T) {
	for name, ports := range map[string][]int32{"Zero": {80, 0}, "Negative": {-1}, "Large": {65536, 80}} {
		t.Run(name, func(t *testing.T) {
			o := podStream{}.options(t.Context(), &api.PodPortForwardOptions{Ports: ports}, "web", "")
			if !o.Forward || len(o.Ports) > 0 || o.Pod != "web" || o.Said == nil {
				t.Errorf("options are %+v", o)
			}
		})
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	api "k8s.io/kubernetes/pkg/apis/core"
)

// S5: protocols that ask for ports later are served whatever ports the query has;
// and what they are told then names the pod.
func TestABadPortOfAQueryOnlyTakesThePorts(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web"}}
	for name, ports := range map[string][]int32{"Zero": {80, 0}, "Negative": {-1}, "Large": {65536, 80}} {
		t.Run(name, func(t *testing.T) {
			o := podStream{}.options(&api.PodPortForwardOptions{Ports: ports}, pod)
			if !o.Forward || len(o.Ports) > 0 || o.Pod != "web" || o.Said == nil {
				t.Errorf("options are %+v", o)
			}
		})
	}
}

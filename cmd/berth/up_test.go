// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/platform"
)

// X3: a port that is open to others, with kubeconfigs that are of no use to them,
// would look like a network that is broken.
func TestUpTellsOfAPortThatKubeconfigsDoNotLeadTo(t *testing.T) {
	for listen, warns := range map[string]bool{
		"0.0.0.0:7443": true, ":7443": true, "[::]:7443": true,
		"127.0.0.1:7443": false, "192.0.2.1:7443": false, "berth.example:7443": false,
	} {
		var out strings.Builder
		config := platform.Config{Listen: listen}
		config.Spaces = []v1alpha1.Space{{ObjectMeta: metav1.ObjectMeta{Name: "demo"}}}
		explainUse(&out, &config, func(space string) string { return "https://127.0.0.1:7443/spaces/" + space })
		if got := strings.Contains(out.String(), "--listen="+listen); got != warns {
			t.Errorf("--listen=%s: told of it: %v, want %v:\n%s", listen, got, warns, out.String())
		}
	}
}

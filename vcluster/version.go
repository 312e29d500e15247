// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"strings"

	"k8s.io/apimachinery/pkg/version"
	"k8s.io/component-base/compatibility"
)

// KubernetesRelease is the version of k8s.io/kubernetes in go.mod, which control
// planes say that they are; a test compares. The binary's build information would tell, but not in tests.
const KubernetesRelease = "v1.37.1"

// reportedVersion is an effective version that names the Kubernetes release
// this binary was built from. Upstream gets it from linker flags; without them
// it says v0.0.0, which Helm charts with a kubeVersion refuse.
type reportedVersion struct {
	compatibility.EffectiveVersion
}

func (v reportedVersion) Info() *version.Info {
	info := v.EffectiveVersion.Info()
	if info != nil && strings.HasPrefix(info.GitVersion, "v0.0.0") {
		info.GitVersion = KubernetesRelease
		info.GitCommit, info.GitTreeState, info.BuildDate = "", "", ""
	}
	return info
}

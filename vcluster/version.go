// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"strings"

	"k8s.io/apimachinery/pkg/version"
	"k8s.io/component-base/compatibility"
)

// KubernetesRelease is the version of k8s.io/kubernetes in go.mod, which control planes report; a test compares them.
// The build information of the binary has it, too, but not in tests.
const KubernetesRelease = "v1.37.1"

// reportedVersion is an effective version with the Kubernetes release from which this binary was built. Upstream gets
// it from linker flags. Without them, it reports v0.0.0, which Helm charts with a kubeVersion reject.
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

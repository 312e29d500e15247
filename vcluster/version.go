// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"runtime/debug"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/version"
	"k8s.io/component-base/compatibility"
)

// reportedVersion is an effective version that names the Kubernetes release
// this binary was built from. Upstream gets it from linker flags; without them
// it says v0.0.0, which Helm charts with a kubeVersion refuse.
type reportedVersion struct {
	compatibility.EffectiveVersion
}

func (v reportedVersion) Info() *version.Info {
	info := v.EffectiveVersion.Info()
	if info == nil || !strings.HasPrefix(info.GitVersion, "v0.0.0") {
		return info
	}
	if release := kubernetesRelease(); release != "" {
		info.GitVersion = release
		info.GitCommit, info.GitTreeState, info.BuildDate = "", "", ""
	}
	return info
}

// kubernetesRelease returns the version of the module k8s.io/kubernetes, as
// v1.36.3, or "" if the binary does not tell.
var kubernetesRelease = sync.OnceValue(func() string {
	build, ok := debug.ReadBuildInfo()
	if !ok {
		return ""
	}
	for _, dep := range build.Deps {
		if dep.Path == "k8s.io/kubernetes" {
			return dep.Version
		}
	}
	return ""
})

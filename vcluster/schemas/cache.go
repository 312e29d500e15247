// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package schemas

import (
	"regexp"
	"sync/atomic"
	_ "unsafe" // for go:linkname
)

// compiled is kube-openapi's cache of the patterns that it has compiled to validate custom resources, a
// map[string]*regexp.Regexp. It is one for the whole process, and kube-openapi never deletes anything from it.
//
//go:linkname compiled k8s.io/kube-openapi/pkg/validation/validate.reDict
var compiled atomic.Value //nolint:gochecknoglobals // It is kube-openapi's.

// maxCompiled is how many compiled patterns the process keeps. They are those of all spaces: with the largest program that a
// definition may ask for, they take about 100 MiB.
const maxCompiled = 200

// TrimCache empties the process's cache of compiled patterns if it holds many. What is still used is compiled again. To ask
// costs next to nothing: do so before each request that may compile some.
func TrimCache() {
	if cache, ok := compiled.Load().(map[string]*regexp.Regexp); ok && len(cache) > maxCompiled {
		// Who adds one meanwhile may put the old ones back: they are then dropped the next time.
		compiled.Store(map[string]*regexp.Regexp{})
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"bytes"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"sync"

	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	genericfeatures "k8s.io/apiserver/pkg/features"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	clientfeatures "k8s.io/client-go/features"
	"k8s.io/component-base/featuregate"
	zpages "k8s.io/component-base/zpages/features"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/vcluster/expressions"
	"github.com/berth-dev/berth/vcluster/unmetered"
)

// Prepare sets what Kubernetes keeps once for a process: feature gates,
// emulated versions, how CEL is compiled, and what happens on a fatal error or a
// panic. The first control plane sets it, for all of them.
var Prepare = sync.OnceValue(func() error {
	gates := map[string]bool{
		// Its lease would tell tenants this machine's host name (N1).
		string(genericfeatures.APIServerIdentity): false,
		// Serves other servers of one cluster; a control plane here is alone.
		string(genericfeatures.UnknownVersionInteroperabilityProxy): false,
		// Pages about the process: its flags, its uptime.
		string(zpages.ComponentFlagz):   false,
		string(zpages.ComponentStatusz): false,
		// There is no watch cache, so there is nothing to wait for, to
		// snapshot or to compare.
		string(genericfeatures.ListFromCacheSnapshot):     false,
		string(genericfeatures.DetectCacheInconsistency):  false,
		string(genericfeatures.SizeBasedListCostEstimate): false,
		// Without a watch cache a streamed list costs more than a plain one.
		string(genericfeatures.WatchList):      false,
		string(clientfeatures.WatchListClient): false,
	}
	if err := compatibility.DefaultComponentGlobalsRegistry.Set(); err != nil {
		return fmt.Errorf("set component versions: %w", err)
	}
	if err := utilfeature.DefaultMutableFeatureGate.SetFromMap(gates); err != nil {
		return fmt.Errorf("set feature gates: %w", err)
	}
	utilfeature.DefaultFeatureGate = validatedOnce{utilfeature.DefaultFeatureGate}
	klog.OsExit = exitUnlessHook
	// A panic in one space's controller, set off by an object that its tenant
	// wrote, must not end the others: upstream logs it, and starts most loops
	// again.
	utilruntime.ReallyCrash = false
	unmetered.Set()
	expressions.BoundPatterns()
	return nil
})

// validatedOnce are the feature gates without DeclarativeValidation, which is locked. It has upstream validate objects of some kinds
// a second time, only to log what is different: it compares each error of a kind with each other, with regular expressions for
// some kinds. 27 KB of empty variables in a CronJob took half a minute, which nothing interrupts. What is valid stays the same.
type validatedOnce struct{ featuregate.FeatureGate }

func (f validatedOnce) Enabled(key featuregate.Feature) bool {
	return key != genericfeatures.DeclarativeValidation && f.FeatureGate.Enabled(key)
}

// exitUnlessHook takes the place of os.Exit in klog. Upstream ends the process
// when a post-start hook of an API server fails; here that would end every
// other space as well, so it ends the hook's goroutine only, and the space
// that it belongs to does not become ready.
//
// It is the last line: hooks known to fail are replaced (package bootstrap), and a
// control plane is stopped only after its hooks have finished (stop.go).
func exitUnlessHook(code int) {
	if bytes.Contains(debug.Stack(), []byte("server.runPostStartHook(")) {
		runtime.Goexit()
	}
	os.Exit(code) //nolint:forbidigo // What klog does unless it is told otherwise.
}

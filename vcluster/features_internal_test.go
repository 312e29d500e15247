// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"
	"errors"
	"testing"

	genericfeatures "k8s.io/apiserver/pkg/features"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/util/compatibility"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/rest"
	"k8s.io/kubernetes/pkg/api/legacyscheme"

	"github.com/berth-dev/berth/vcluster/process"
)

// Upstream ends the process, and with it every other space, when a post-start
// hook fails. This test's process would end, too.
func TestAHookThatFailsDoesNotEndTheProcess(t *testing.T) {
	if err := process.Prepare(); err != nil {
		t.Fatal(err)
	}
	c := genericapiserver.NewConfig(legacyscheme.Codecs)
	c.EffectiveVersion = compatibility.DefaultBuildEffectiveVersion()
	c.LoopbackClientConfig = &rest.Config{}
	c.ExternalAddress = "space.invalid:443"
	c.EnableMetrics = false // as all of Berth's
	c.SecureServing = &genericapiserver.SecureServingInfo{Listener: newIdleListener(), DisableHTTP2: true}
	s, err := c.Complete(nil).New("test", genericapiserver.NewEmptyDelegate())
	if err != nil {
		t.Fatal(err)
	}
	failed, passed := make(chan struct{}), make(chan struct{})
	s.AddPostStartHookOrDie("fails", func(genericapiserver.PostStartHookContext) error {
		close(failed)
		return errors.New("a failure")
	})
	s.AddPostStartHookOrDie("passes", func(genericapiserver.PostStartHookContext) error {
		<-failed
		close(passed)
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	prepared := s.PrepareRun()
	go func() { ended <- prepared.RunWithContext(ctx) }()
	<-passed
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// L3: a second validation of objects is quadratic in their errors, and changes nothing. All other features are as they are set.
func TestHostileObjectsAreValidatedOnce(t *testing.T) {
	if err := process.Prepare(); err != nil {
		t.Fatal(err)
	}
	if utilfeature.DefaultFeatureGate.Enabled(genericfeatures.DeclarativeValidation) {
		t.Error("objects are validated a second time, to be compared")
	}
	for name := range utilfeature.DefaultMutableFeatureGate.GetAll() {
		if name != genericfeatures.DeclarativeValidation &&
			utilfeature.DefaultFeatureGate.Enabled(name) != utilfeature.DefaultMutableFeatureGate.Enabled(name) {
			t.Errorf("feature %s differs", name)
		}
	}
}

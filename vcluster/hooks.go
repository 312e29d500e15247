// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/apiserver/pkg/server/healthz"
	flowcontrolrest "k8s.io/kubernetes/pkg/registry/flowcontrol/rest"
	rbacrest "k8s.io/kubernetes/pkg/registry/rbac/rest"
	schedulingrest "k8s.io/kubernetes/pkg/registry/scheduling/rest"

	"github.com/berth-dev/berth/vcluster/bootstrap"
)

// crdSyncedHook waits for the informer of CRDs. If it is stopped before that, it fails, and the process ends.
const crdSyncedHook = "crd-informer-synced"

// replacedHooks are upstream's post-start hooks that can fail. A failing hook ends the process, and with it all other
// spaces. Package bootstrap does what they do; it logs errors and retries. They would also wait for a second before
// their first attempt, which is most of a start.
var replacedHooks = []string{
	rbacrest.PostStartHookName,
	schedulingrest.PostStartHookName,
	// It initializes API priority and fairness, which is off.
	flowcontrolrest.PostStartHookName,
	crdSyncedHook,
}

const (
	bootstrapHook = "berth-bootstrap"
	hookPrefix    = "poststarthook/"
	// crdsReadyHook finishes when CRDs are known and served.
	crdsReadyHook = "start-apiextensions-controllers"
	// crdsReadySignal is the signal before which upstream responds with 503 instead of 404. The hook
	// crd-informer-synced closes it.
	crdsReadySignal = "CRDInformerHasNotSynced"

	hookPoll = 10 * time.Millisecond
	// hookTimeout is how long a stop waits for hooks to finish. The longest of upstream's hooks fails after a minute,
	// but only if the store fails.
	hookTimeout = 15 * time.Second
)

// hooks adds Berth's post-start hooks to a server, and knows when all hooks of the server, and what they started, have
// finished.
type hooks struct {
	checks    []healthz.HealthChecker
	crdReady  chan struct{}
	crds      *watchedCRDs
	bootstrap *bootstrap.Writer
	// stopping ends Berth's hooks early.
	stopping context.Context
}

func newHooks(stopping context.Context, bootstrap *bootstrap.Writer) *hooks {
	return &hooks{crdReady: make(chan struct{}), bootstrap: bootstrap, stopping: stopping}
}

func (h *hooks) add(c *genericapiserver.Config) error {
	err := c.AddPostStartHook(bootstrapHook, func(genericapiserver.PostStartHookContext) error {
		h.bootstrap.Wait(h.stopping)
		return nil
	})
	if err != nil {
		return fmt.Errorf("add hook %s: %w", bootstrapHook, err)
	}
	err = c.AddPostStartHook("berth-"+crdSyncedHook, func(hook genericapiserver.PostStartHookContext) error {
		if h.wait(hook.Context, crdsReadyHook) == nil {
			close(h.crdReady)
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("add hook %s: %w", crdSyncedHook, err)
	}
	return nil
}

// watch must be called after the server is built, and before it runs.
func (h *hooks) watch(s *genericapiserver.GenericAPIServer, crds *watchedCRDs) {
	h.crds = crds
	s.MuxAndDiscoveryCompleteSignals()[crdsReadySignal] = h.crdReady
	for _, check := range s.HealthzChecks() {
		if strings.HasPrefix(check.Name(), hookPrefix) {
			h.checks = append(h.checks, check)
		}
	}
}

// waitAll returns when all hooks, and what they started, may be stopped.
func (h *hooks) waitAll(ctx context.Context) error {
	if err := h.wait(ctx); err != nil {
		return err
	}
	select {
	case <-h.crds.synced:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// wait returns when the named hooks have finished, or all hooks if none is named.
func (h *hooks) wait(ctx context.Context, names ...string) error {
	return wait.PollUntilContextCancel(ctx, hookPoll, true, func(context.Context) (bool, error) {
		return len(h.pending(names...)) == 0, nil
	})
}

// pending returns the hooks that have not finished.
func (h *hooks) pending(names ...string) []string {
	var pending []string
	for _, check := range h.checks {
		name := strings.TrimPrefix(check.Name(), hookPrefix)
		if len(names) > 0 && !slices.Contains(names, name) {
			continue
		}
		if check.Check(nil) != nil {
			pending = append(pending, name)
		}
	}
	return pending
}

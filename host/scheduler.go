// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"context"
	"fmt"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/events"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/profile"
)

// runScheduler runs upstream's scheduler with its default profile until ctx
// ends. It calls ready when pods can be scheduled.
//
// Without the command around it there is no leader election, no port, and
// nothing that may happen only once in a process. When it returns, bindings
// under way are cut off, and the scheduler's two recorders of metrics are
// asleep for at most a second more: neither can be waited for.
func runScheduler(ctx context.Context, config *rest.Config, ready func()) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("make client of scheduler: %w", err)
	}
	informers := scheduler.NewInformerFactory(client, 0, nil)
	defer informers.Shutdown()
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	defer broadcaster.Shutdown()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	if err := broadcaster.StartRecordingToSinkWithContext(ctx); err != nil {
		return fmt.Errorf("start events of scheduler: %w", err)
	}
	// No factory of dynamic informers: they serve custom resources that only
	// plugins outside the tree ask for.
	s, err := scheduler.New(ctx, client, informers, nil, profile.NewRecorderFactory(broadcaster),
		scheduler.WithKubeConfig(config))
	if err != nil {
		return fmt.Errorf("make scheduler: %w", err)
	}
	informers.Start(ctx.Done())
	informers.WaitForCacheSync(ctx.Done())
	if err := s.WaitForHandlersSync(ctx); err != nil {
		return fmt.Errorf("sync informers of scheduler: %w", err)
	}
	ready()
	s.Run(ctx)
	return nil
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
)

// teller tells a tenant, in events in its space, what becomes of its objects.
// Few spaces ever hear of it: what recording takes is made for the first event.
type teller struct {
	events typedcorev1.EventsGetter

	mu          sync.Mutex
	closed      bool
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorder
}

func (t *teller) tell(about runtime.Object, eventType, reason, message string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	if t.broadcaster == nil {
		t.broadcaster = record.NewBroadcaster()
		t.broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: t.events.Events("")})
		t.recorder = t.broadcaster.NewRecorder(known(), corev1.EventSource{Component: "berth"})
	}
	t.recorder.Event(about, eventType, reason, message)
}

func (t *teller) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	if t.broadcaster != nil {
		t.broadcaster.Shutdown()
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer

import (
	"strings"
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

const (
	// maxMessage is how many bytes an event, or a condition, says: a refusal names each field at fault, and recorders
	// keep the messages of events.
	maxMessage = 1 << 10
	// maxRecorded is how many objects and messages a recorder remembers, so as to count what comes again.
	maxRecorded = 512
)

// brief is the beginning of a message that is too long.
func brief(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	const more = " ..."
	return strings.ToValidUTF8(message[:maxMessage-len(more)], "") + more
}

func (t *teller) tell(about runtime.Object, eventType, reason, message string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return
	}
	if t.broadcaster == nil {
		t.broadcaster = record.NewBroadcasterWithCorrelatorOptions(record.CorrelatorOptions{LRUCacheSize: maxRecorded})
		t.broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: t.events.Events("")})
		t.recorder = t.broadcaster.NewRecorder(known(), corev1.EventSource{Component: "berth"})
	}
	t.recorder.Event(about, eventType, reason, brief(message))
}

func (t *teller) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	if t.broadcaster != nil {
		t.broadcaster.Shutdown()
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"

	"github.com/berth-dev/berth/syncer/resources"
)

// eventRecorder records events about a tenant's objects in its space. Its parts are created with the first event,
// because few spaces have any.
type eventRecorder struct {
	events typedcorev1.EventsGetter

	mu          sync.Mutex
	closed      bool
	broadcaster record.EventBroadcaster
	recorder    record.EventRecorder
}

const (
	// maxMessage is the maximum length of events and conditions, in bytes. Errors name each invalid field, and
	// recorders keep the messages of events in memory.
	maxMessage = 1 << 10
	// maxRecorded is how many objects and messages a recorder remembers to count repeated events.
	maxRecorded = 512
)

// brief truncates a long message.
func brief(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	const more = " ..."
	return strings.ToValidUTF8(message[:maxMessage-len(more)], "") + more
}

func (r *eventRecorder) Record(about runtime.Object, eventType, reason, message string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	if r.broadcaster == nil {
		r.broadcaster = record.NewBroadcasterWithCorrelatorOptions(record.CorrelatorOptions{LRUCacheSize: maxRecorded})
		r.broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: r.events.Events("")})
		r.recorder = r.broadcaster.NewRecorder(resources.Scheme(), corev1.EventSource{Component: "berth"})
	}
	r.recorder.Event(about, eventType, reason, brief(message))
}

func (r *eventRecorder) close() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	if r.broadcaster != nil {
		r.broadcaster.Shutdown()
	}
}

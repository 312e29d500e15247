// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcesyncs

import (
	"context"
	"fmt"
	"time"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
)

const (
	// maxMessage limits messages, in bytes. Each of up to 128 fields may have something wrong.
	maxMessage = 1024
	// rewrite is how long a status stays that somebody else has changed, so that two platforms that find different things on a host don't
	// write as fast as they can.
	rewrite = 30 * time.Second
)

// written is the status that was written last.
type written struct {
	uid types.UID
	metav1.Condition
	at time.Time
}

// ready returns the condition Ready of a ResourceSync.
func (is *state) ready() metav1.Condition {
	ready := metav1.Condition{
		Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, ObservedGeneration: is.of.generation, Reason: is.problem.reason, Message: is.problem.message,
	}
	switch is.checked {
	case nil:
	case is.inForce:
		ready.Status, ready.Reason, ready.Message = metav1.ConditionTrue, v1alpha1.ReasonSyncing, "the objects of the selected tenants' spaces are synced"
	default:
		ready.Reason, ready.Message = v1alpha1.ReasonHostUnavailable, fmt.Sprintf("%v; Berth retries", is.unready)
		if apierrors.IsForbidden(is.unready) {
			ready.Message += fmt.Sprintf("; to grant the right, run 'berth sync-policy %s | kubectl apply -f -'", is.checked.Name)
		}
	}
	ready.Message = cut(ready.Message)
	if ready.Status == metav1.ConditionFalse && is.inForce != nil {
		ready.Message += "; until then, spaces keep what they sync"
	}
	return ready
}

// cut returns a message of bounded length.
func cut(message string) string {
	if len(message) <= maxMessage {
		return message
	}
	end := maxMessage
	for !utf8.RuneStart(message[end]) {
		end--
	}
	return message[:end] + "..."
}

// writeStatuses writes the statuses that differ. They have to be written again after the pause, if that is not 0.
func (s *Syncs) writeStatuses(ctx context.Context, host client.Client, now time.Time, syncs map[string]*v1alpha1.ResourceSync, states map[string]*state) (pause time.Duration) {
	for name := range s.written {
		if syncs[name] == nil {
			delete(s.written, name)
		}
	}
	for name, is := range states {
		sync, ready := syncs[name], is.ready()
		last := s.written[name]
		if differs := !has(sync, ready); !differs {
			continue
		}
		if again := rewrite - now.Sub(last.at); last.uid == sync.UID && last.Condition == ready && again > 0 {
			pause = sooner(pause, again)
			continue
		}
		if err := write(ctx, host, sync, ready); err != nil {
			if ctx.Err() == nil {
				s.options.Logger.Error(err, "Could not write the status of a ResourceSync; Berth retries", "sync", name)
			}
			pause = sooner(pause, retry)
			continue
		}
		s.written[name] = written{sync.UID, ready, now}
	}
	return pause
}

// has reports whether a ResourceSync has a condition.
func has(sync *v1alpha1.ResourceSync, ready metav1.Condition) bool {
	is := meta.FindStatusCondition(sync.Status.Conditions, ready.Type)
	return is != nil && is.Status == ready.Status && is.Reason == ready.Reason && is.Message == ready.Message &&
		is.ObservedGeneration == ready.ObservedGeneration && sync.Status.ObservedGeneration == ready.ObservedGeneration
}

// write writes the status of a ResourceSync.
func write(ctx context.Context, host client.Client, sync *v1alpha1.ResourceSync, ready metav1.Condition) error {
	changed := sync.DeepCopy()
	meta.SetStatusCondition(&changed.Status.Conditions, ready)
	changed.Status.ObservedGeneration = ready.ObservedGeneration
	err := host.Status().Patch(ctx, changed, client.MergeFrom(sync))
	if apierrors.IsNotFound(err) {
		return nil // it was deleted meanwhile
	}
	return err
}

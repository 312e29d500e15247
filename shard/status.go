// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/syncer"
)

// Reasons of the condition Ready.
const (
	ReasonRunning  = "Running"
	ReasonAsleep   = "Asleep"   // true, or unknown if the space has not run in this process yet
	ReasonWaking   = "Waking"   // it has run in this process before
	ReasonStarting = "Starting" // it has not run in this process
	ReasonStopping = "Stopping" // it goes to sleep, or is being removed
	ReasonFailed   = "Failed"   // the message says why; Berth retries
	// ReasonCrashSuspect says that the process ended uncleanly while the space was active, so that the space is held
	// back. It starts later.
	ReasonCrashSuspect = "CrashSuspect"
	// ReasonHostUnreachable says that the space serves but can't be synced. The condition is true.
	ReasonHostUnreachable = "HostUnreachable"
)

// Status is what is known of a space without waking it.
type Status struct {
	Name string `json:"name"`
	// Conditions contains Ready. For one space that runs, it also contains HostReachable, StoreHealthy, and Synced; see
	// [v1alpha1].
	Conditions []metav1.Condition `json:"conditions"`
	// Requests counts the current requests from outside, including watches.
	Requests int `json:"requests"`
	// LastRequest is when the last request from outside came or was answered. It is nil if there was none since the
	// space woke by itself.
	LastRequest *metav1.Time `json:"lastRequest,omitempty"`
	// NextWake is when a sleeping space wakes by itself, unless a request or a change on the host wakes it earlier. It
	// is nil if the space has no work to wake for.
	NextWake *metav1.Time `json:"nextWake,omitempty"`
}

// Status returns the status of a space; false if it has no place here.
func (s *Shard) Status(name string) (Status, bool) {
	s.mu.Lock()
	p := s.places[name]
	if p == nil {
		s.mu.Unlock()
		return Status{}, false
	}
	status, space, since := s.statusOf(p), p.space, p.since
	s.mu.Unlock()
	status.Conditions = append(status.Conditions, s.parts(space, since)...)
	return status, true
}

// List returns the status of all spaces, sorted by name.
func (s *Shard) List() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	list := make([]Status, 0, len(s.places))
	for _, p := range s.places {
		list = append(list, s.statusOf(p))
	}
	slices.SortFunc(list, func(a, b Status) int { return cmp.Compare(a.Name, b.Name) })
	return list
}

// statusOf returns what is known of a space without asking its components.
func (s *Shard) statusOf(p *place) Status {
	reason, message := p.reason()
	if err := s.host.Reachable(); err != nil && p.state == running {
		reason, message = ReasonHostUnreachable, "the space serves requests, and syncs again when the host is reachable: "+err.Error()
	}
	status := Status{Name: p.name, Requests: p.requests + p.held, LastRequest: timeOf(p.lastRequest), Conditions: []metav1.Condition{{
		Type: v1alpha1.ConditionReady, Status: p.ready(), Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(p.readySince),
	}}}
	if p.state == asleep {
		status.NextWake = timeOf(s.wakesAt(p))
	}
	if errors.Is(p.failure, kine.ErrDamaged) {
		status.Conditions = append(status.Conditions, condition(v1alpha1.ConditionStoreHealthy, v1alpha1.ReasonStoreDamaged,
			p.failure.Error()+"; restore a snapshot with `berth snapshot restore`", p.since))
	}
	if errors.Is(p.failure, kine.ErrServer) {
		status.Conditions = append(status.Conditions, condition(v1alpha1.ConditionStoreHealthy, v1alpha1.ReasonUnreachable,
			p.failure.Error()+"; check the server, and the DSN in the Secret of spec.store.secretName", p.since))
	}
	return status
}

// parts returns the conditions of the components of a running space. They have been as they are since some time after
// since.
func (s *Shard) parts(space *Space, since time.Time) []metav1.Condition {
	if space == nil {
		return nil
	}
	host := condition(v1alpha1.ConditionHostReachable, v1alpha1.ReasonReachable, "the host's API server answers", since)
	if err := s.host.Reachable(); err != nil {
		host = condition(v1alpha1.ConditionHostReachable, v1alpha1.ReasonUnreachable, err.Error()+"; check that the host's API server runs and that Berth can connect to it", since)
	}
	store := condition(v1alpha1.ConditionStoreHealthy, v1alpha1.ReasonHealthy, "the store accepts writes", since)
	if stats, err := space.StoreStats(context.Background()); errors.Is(err, kine.ErrDamaged) {
		store = condition(v1alpha1.ConditionStoreHealthy, v1alpha1.ReasonStoreDamaged, err.Error()+"; restore a snapshot with `berth snapshot restore`", since)
	} else if errors.Is(err, kine.ErrTakenOver) {
		store = condition(v1alpha1.ConditionStoreHealthy, v1alpha1.ReasonStoreTakenOver, err.Error()+"; stop the other process, and then put the space to sleep", since)
	} else if stats.Unreachable {
		store = condition(v1alpha1.ConditionStoreHealthy, v1alpha1.ReasonUnreachable,
			"the database of the store can't be reached; requests fail until it can; check the server, and the DSN in the Secret of spec.store.secretName", since)
	} else if stats.Full {
		store = condition(v1alpha1.ConditionStoreHealthy, v1alpha1.ReasonStoreFull,
			fmt.Sprintf("the store uses %d of %d bytes; delete objects in the space, or raise the limit store-bytes", stats.UsedBytes, stats.MaxBytes), since)
	}
	synced := condition(v1alpha1.ConditionSynced, v1alpha1.ReasonSynced, "all objects are synced to the host", since)
	if n := space.SyncStats().Unsynced; n > 0 {
		synced = condition(v1alpha1.ConditionSynced, v1alpha1.ReasonRejectedByHost,
			fmt.Sprintf("%d objects are not synced to the host; see their events in the space", n), since)
	}
	return []metav1.Condition{host, store, synced}
}

func condition(of, reason, message string, since time.Time) metav1.Condition {
	status := metav1.ConditionFalse
	if reason == v1alpha1.ReasonReachable || reason == v1alpha1.ReasonHealthy || reason == v1alpha1.ReasonSynced {
		status = metav1.ConditionTrue
	}
	return metav1.Condition{Type: of, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(since)}
}

func timeOf(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	wrapped := metav1.NewTime(t)
	return &wrapped
}

func (p *place) ready() metav1.ConditionStatus {
	heldBack := p.suspect != nil && p.state == queued && !p.hurried
	switch {
	case p.state == running:
		return metav1.ConditionTrue
	case p.failure != nil || p.evicted != nil || heldBack:
		return metav1.ConditionFalse
	case p.started || p.state == stopping:
		return metav1.ConditionTrue // requests are answered, at most after a wait
	case p.state == asleep:
		return metav1.ConditionUnknown
	default:
		return metav1.ConditionFalse
	}
}

func (p *place) reason() (reason, message string) {
	switch p.state {
	case running:
		return ReasonRunning, "the space serves requests and syncs"
	case stopping:
		return ReasonStopping, "the space is being put to sleep; a request wakes it"
	case queued, starting:
		if p.suspect != nil && p.state == queued && !p.hurried {
			return ReasonCrashSuspect, heldBack{*p.suspect}.Error()
		}
		if p.failure != nil {
			return ReasonStarting, "Berth retries to start the space; the last start failed: " + p.failure.Error()
		}
		if p.started {
			return ReasonWaking, "the space is waking up"
		}
		return ReasonStarting, "the space is starting"
	case asleep:
	}
	switch held := (heldBack{}); {
	case errors.As(p.failure, &held):
		return ReasonCrashSuspect, p.failure.Error()
	case p.failure != nil:
		return ReasonFailed, p.failure.Error()
	case !p.started:
		return ReasonAsleep, "the space has not run since Berth started; a request wakes it"
	default:
		return ReasonAsleep, "a request, a change on the host, or the next timer of the space wakes it"
	}
}

// HostObjects returns how many objects each space has on the host, by resource, whether the space is awake or not.
func (s *Shard) HostObjects() map[string]map[string]int { return s.host.Objects() }

// StoreStats returns statistics of the space's store.
func (s *Space) StoreStats(ctx context.Context) (kine.Stats, error) { return s.plane.StoreStats(ctx) }

// SyncStats returns what the space's syncer has done since the space woke.
func (s *Space) SyncStats() syncer.Stats { return s.syncer.Stats() }

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/syncer"
)

// ConditionReady is the type of the condition that every space has. It is true
// while the space runs, and while it sleeps, as a request wakes it.
const ConditionReady = "Ready"

// Reasons of the condition Ready.
const (
	ReasonRunning  = "Running"
	ReasonAsleep   = "Asleep"   // true, or unknown if the space has not run in this process yet
	ReasonWaking   = "Waking"   // it ran here before
	ReasonStarting = "Starting" // it did not
	ReasonStopping = "Stopping" // on its way to sleep, or away
	ReasonFailed   = "Failed"   // see the message; it is tried again
	// ReasonCrashSuspect says that the process ended uncleanly while the space was
	// active, and that it is held back for that. It is started again.
	ReasonCrashSuspect = "CrashSuspect"
	// ReasonHostUnreachable says that the space serves, but can't be synced; the
	// condition is true.
	ReasonHostUnreachable = "HostUnreachable"
	// ReasonNotListed says that the space is not one of those that Berth is to run;
	// the condition is unknown.
	ReasonNotListed = "NotListed"
)

// Status is what is known of a space without waking it.
type Status struct {
	Name       string             `json:"name"`
	Conditions []metav1.Condition `json:"conditions"`
	// Requests from outside that are under way, watches too.
	Requests int `json:"requests"`
	// LastRequest is when the last request from outside came or was answered;
	// nil if there was none since the space woke by itself.
	LastRequest *metav1.Time `json:"lastRequest,omitempty"`
	// NextWake is when a sleeping space wakes by itself, if no change on the
	// host or request wakes it before; nil if it has no reason to.
	NextWake *metav1.Time `json:"nextWake,omitempty"`
}

// Status of a space; false if it has no place here.
func (s *Shard) Status(name string) (Status, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.places[name]
	if p == nil {
		return Status{}, false
	}
	return s.statusOf(p), true
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

func (s *Shard) statusOf(p *place) Status {
	reason, message := p.reason()
	if err := s.host.Reachable(); err != nil && p.state == running {
		reason, message = ReasonHostUnreachable, "the space serves, and syncs again once the host does: "+err.Error()
	}
	status := Status{Name: p.name, Requests: p.requests + p.held, LastRequest: timeOf(p.lastRequest), Conditions: []metav1.Condition{{
		Type: ConditionReady, Status: p.ready(), Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(p.readySince),
	}}}
	if p.state == asleep {
		status.NextWake = timeOf(s.wakesAt(p))
	}
	return status
}

func timeOf(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	wrapped := metav1.NewTime(t)
	return &wrapped
}

func (p *place) ready() metav1.ConditionStatus {
	switch {
	case p.state == running:
		return metav1.ConditionTrue
	case p.state == asleep && errors.Is(p.failure, ErrNotListed):
		return metav1.ConditionUnknown
	case p.state != asleep || p.failure != nil:
		return metav1.ConditionFalse
	case !p.started:
		return metav1.ConditionUnknown
	default:
		return metav1.ConditionTrue
	}
}

func (p *place) reason() (reason, message string) {
	switch p.state {
	case running:
		return ReasonRunning, "the space serves and syncs"
	case stopping:
		return ReasonStopping, "the space is being put to sleep; a request wakes it"
	case queued, starting:
		if p.suspect != nil && p.state == queued && !p.hurried {
			return ReasonCrashSuspect, heldBack{*p.suspect}.Error()
		}
		if p.failure != nil {
			return ReasonStarting, "the space is tried again; last it did not run: " + p.failure.Error()
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
	case errors.Is(p.failure, ErrNotListed):
		return ReasonNotListed, p.failure.Error()
	case p.failure != nil:
		return ReasonFailed, p.failure.Error()
	case !p.started:
		return ReasonAsleep, "the space has not been started since this process began; a request wakes it"
	default:
		return ReasonAsleep, "a request, a change on the host or the space's next timer wakes it"
	}
}

// HostObjects counts what each space has on the host, by kind, whether it is
// awake or not.
func (s *Shard) HostObjects() map[string]map[string]int { return s.host.Objects() }

// StoreStats are figures of the space's store.
func (s *Space) StoreStats(ctx context.Context) (kine.Stats, error) { return s.plane.StoreStats(ctx) }

// SyncStats count what the space's syncer has done since it woke.
func (s *Space) SyncStats() syncer.Stats { return s.syncer.Stats() }

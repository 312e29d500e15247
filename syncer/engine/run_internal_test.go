// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"errors"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/pod"
)

// reconciled reconciles a pod that is on the host already, of which the space's rules and the host say so.
func reconciled(t *testing.T, down, pull error) (time.Duration, *record.FakeRecorder, error) {
	t.Helper()
	recorder := record.NewFakeRecorder(10)
	space := translate.Space{Name: "demo"}
	v := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "u"}}
	f := hostcache.NewRouter("", nil)
	host := pod.ToHost(space, v, pod.Surroundings{})
	if err := f.Replace([]any{host}, "1"); err != nil {
		t.Fatal(err)
	}
	h := &hostcache.Host{Routers: map[string]*hostcache.Router{resources.Pods: f}}
	virtual := cache.NewSharedIndexInformer(&cache.ListWatch{}, &corev1.Pod{}, 0, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	if err := virtual.GetIndexer().Add(v); err != nil {
		t.Fatal(err)
	}
	s := &Engine{Space: space, Host: h, Writer: NewWriter(nil, h), Recorder: &eventRecorder{broadcaster: record.NewBroadcaster(), recorder: recorder}, shortages: newShortages(&Queue{}, func(bool) {}), processor: newComputing(clock.RealClock{})}
	k := &Resource[*corev1.Pod]{
		Engine: s, Name: resources.Pods, NameLimit: translate.LimitSubdomain, Virtual: virtual,
		ToHost:     func(context.Context, *corev1.Pod) (*corev1.Pod, bool, error) { return host, true, down },
		UpdateHost: func(_, _ *corev1.Pod) bool { return false },
		SyncStatus: func(context.Context, *corev1.Pod, *corev1.Pod) (time.Duration, error) { return time.Hour, pull },
	}
	again, err := k.reconcile(t.Context(), types.NamespacedName{Namespace: "default", Name: "web"})
	s.Recorder.close()
	return again, recorder, err
}

// T8, S5: tokens of a pod that a newer rule forbids are refreshed, also in a space that sleeps.
func TestTokensOfAPodThatANewRuleForbidsAreDue(t *testing.T) {
	rule := Forbid(field.ErrorList{field.Forbidden(field.NewPath("spec"), "by a new rule")})
	again, _, err := reconciled(t, rule, nil)
	if again != time.Hour || !errors.Is(err, errRefused) {
		t.Errorf("due after %s: %v", again, err)
	}
	q := newQueue(1, func(context.Context, Key) next { return next{} })
	defer q.close()
	now := time.Now()
	q.putLater(thing("web"), refused(time.Minute, again))
	if at, ok := q.nextTimer(); !ok || at.Before(now.Add(again)) {
		t.Errorf("a space that sleeps is to wake at %s (%t), want %s", at, ok, now.Add(again))
	}
	q.putLater(thing("web"), refused(time.Minute, 0))
	if at, ok := q.nextTimer(); ok {
		t.Errorf("a space that sleeps is to wake at %s for what was refused", at)
	}
}

// L3: what a quota or the space's bytes refuse of a pod that is there, its tokens, waits and is not tried at any rate.
func TestHostileTokensThatAreRefusedWait(t *testing.T) {
	for name, refusal := range map[string]error{
		"quota": overQuota(), "bytes": &bounds.ExceededError{Quantity: bounds.SyncedBytes, Asked: 2, Used: 1, Limit: 2},
	} {
		t.Run(name, func(t *testing.T) {
			if _, recorder, err := reconciled(t, nil, errors.Join(nil, refusal)); !errors.Is(err, errRefused) || len(recorder.Events) != 1 {
				t.Errorf("got %v and %d events, want that it is refused, and an event", err, len(recorder.Events))
			}
		})
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer/hostcache"
)

const (
	// probes is the resource of keys that stand for the next probe of a shortage.
	probes = "quota probes"
	// maxAsks is how many shortages of one resource are distinguished.
	maxAsks = 8
	// maxProbes is how many creates are tried at once after successful probes.
	maxProbes = 64
	// maxEased is how many rejected objects that are already on the host are retried when a quota allows more.
	maxEased = 64
)

// errWaits is an errRefused for an object that is retried only when its shortage ends.
var errWaits = fmt.Errorf("%w: waits for quota", errRefused)

// shortages are what a space asked for and the host rejected because of a quota. All objects that ask for the same
// wait, and one of them probes now and then, or when a quota allows more. A space can have tens of thousands of pods
// that its quota does not allow, and each attempt costs the host as much as a pod.
type shortages struct {
	enqueue func(Key)
	after   func(Key, next)
	changed func(short bool)

	mu     sync.Mutex
	of     map[string]*shortage // by what is asked for
	called map[Key]*shortage    // was waiting, and has been enqueued
	others map[Key]struct{}     // rejected because of a quota, but not when they were created
	eased  uint64               // how often quotas have changed to allow more
}

type shortage struct {
	asked   string
	err     error // of the last attempt
	waiting []Key // in order; those not in queued have left
	queued  map[Key]struct{}
	calls   int // keys that were called and have not tried yet
	tries   int // current creates
	allowed int // creates that may be tried now
	window  int // how many may be tried after the next success
	pause   time.Duration
}

// try is a create that may be sent to the host.
type try struct {
	resource string
	of       *shortage // nil if there is no shortage
	eased    uint64    // shortages.eased at that time
}

func newShortages(q *Queue, changed func(short bool)) *shortages {
	return &shortages{
		enqueue: q.Add, after: q.putLater, changed: changed,
		of: map[string]*shortage{}, called: map[Key]*shortage{}, others: map[Key]struct{}{},
	}
}

// enter reports whether an object may be created on the host now. If not, it returns the host's last error, and key
// waits. After a success, done must be called.
func (s *shortages) enter(key Key, host client.Object) (try, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := try{resource: key.Resource, eased: s.eased}
	if len(s.of) == 0 {
		return t, nil
	}
	called, ok := s.called[key]
	if ok {
		delete(s.called, key)
		called.calls--
	}
	t.of = s.find(key.Resource, asks(host))
	if ok && t.of != called {
		delete(called.queued, key)
		s.call(called, 1) // it now asks for something else, so the next one gets its turn
	}
	switch {
	case t.of == nil:
		return t, nil
	case t.of.allowed == 0:
		t.of.wait(key)
		return t, t.of.err
	}
	delete(t.of.queued, key)
	t.of.allowed--
	t.of.tries++
	return t, nil
}

// find returns the shortage of what an object of a resource asks for; nil if there is none.
func (s *shortages) find(resource, asks string) *shortage {
	if of := s.of[resource+" "+asks]; of != nil {
		return of
	}
	return s.of[resource]
}

// done records the result of a create.
func (s *shortages) done(t try, key Key, host client.Object, err error) {
	refused := QuotaExceeded(err)
	if t.of == nil && !refused {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	of, probe := t.of, t.of != nil
	if probe {
		of.tries--
	} else if of = s.find(t.resource, asks(host)); of == nil {
		of = s.begin(t.resource, asks(host))
	}
	switch {
	case refused:
		of.err = err
		of.wait(key)
		switch {
		case s.eased != t.eased: // the quota changed in the meantime, and nobody else reports that
			s.grant(of, 1)
		case probe:
			of.allowed, of.window = 0, 1
			of.pause = min(2*of.pause, lastRetry)
			s.schedule(of)
		}
	case err == nil:
		of.pause, of.window = firstLater, min(2*of.window, maxProbes)
		s.grant(of, of.window)
	default: // it says nothing about the quota
		s.schedule(of)
	}
}

// begin records a shortage.
func (s *shortages) begin(resource, asks string) *shortage {
	asked, n := resource+" "+asks, 0
	for _, of := range s.of {
		if len(of.asked) > len(resource) && of.asked[:len(resource)+1] == resource+" " {
			n++
		}
	}
	if n >= maxAsks {
		asked = resource
	}
	of := &shortage{asked: asked, queued: map[Key]struct{}{}, window: 1, pause: firstLater}
	if s.of[asked] = of; len(s.of) == 1 {
		s.changed(true)
	}
	s.schedule(of)
	return of
}

func (of *shortage) wait(key Key) {
	if _, waits := of.queued[key]; waits {
		return
	}
	of.queued[key] = struct{}{}
	if of.waiting = append(of.waiting, key); len(of.waiting) > 2*len(of.queued)+16 {
		of.waiting = slices.DeleteFunc(of.waiting, func(k Key) bool { _, waits := of.queued[k]; return !waits })
	}
}

func (s *shortages) schedule(of *shortage) {
	s.after(Key{Resource: probes, NamespacedName: types.NamespacedName{Name: of.asked}}, next{after: of.pause, idle: true})
}

// grant allows n creates, and enqueues the objects that have waited longest. If nobody waits, the shortage ends.
func (s *shortages) grant(of *shortage, n int) {
	of.allowed = n
	s.call(of, n)
}

func (s *shortages) call(of *shortage, n int) {
	for n > 0 && len(of.waiting) > 0 {
		key := of.waiting[0]
		of.waiting = of.waiting[1:]
		if _, waits := of.queued[key]; !waits {
			continue
		}
		delete(of.queued, key)
		s.called[key] = of
		of.calls++
		n--
		s.enqueue(key)
	}
	if len(of.queued)+of.calls+of.tries == 0 && s.of[of.asked] == of {
		delete(s.of, of.asked)
	}
	if len(s.of)+len(s.others) == 0 {
		s.changed(false)
	}
}

// ended is called after each reconcile. If an object was called and did not try, the next one gets its turn.
func (s *shortages) ended(key Key, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.of) > 0 && !errors.Is(err, errWaits) {
		for _, of := range s.of {
			delete(of.queued, key) // it need not be on the host any more, or it is
		}
	}
	if of, ok := s.called[key]; ok {
		delete(s.called, key)
		of.calls--
		s.call(of, 1)
	}
	if _, ok := s.others[key]; ok && !errors.Is(err, errRefused) {
		delete(s.others, key)
		if len(s.of)+len(s.others) == 0 {
			s.changed(false)
		}
	}
}

// waits reports whether key waits for a shortage to end. If not, the object is already on the host, and is retried when
// the quota allows more.
func (s *shortages) waits(key Key) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, of := range s.of {
		if _, waits := of.queued[key]; waits {
			return true
		}
	}
	if s.called[key] != nil {
		return true // it has been called in the meantime
	}
	if len(s.others) < maxEased {
		s.others[key] = struct{}{}
		s.changed(true)
	}
	return false
}

// ease is called when a quota has changed to allow more.
func (s *shortages) ease() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.eased++
	for _, of := range s.of {
		if of.pause = firstLater; of.tries+of.calls == 0 {
			of.window = 1
			s.grant(of, 1)
		}
	}
	for key := range s.others {
		s.enqueue(key)
	}
}

// probe processes the key of a shortage.
func (s *shortages) probe(_ context.Context, asked types.NamespacedName) (time.Duration, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if of := s.of[asked.Name]; of != nil && of.tries == 0 {
		s.grant(of, 1)
	}
	return 0, nil
}

// asks returns what a host object asks of a quota. Objects that ask for too much must not block objects that ask for
// less.
func asks(host client.Object) string {
	var asked []any
	switch o := host.(type) {
	case *corev1.Pod:
		for _, c := range slices.Concat(o.Spec.InitContainers, o.Spec.Containers) {
			asked = append(asked, c.Resources.Requests, c.Resources.Limits)
		}
		asked = append(asked, o.Spec.Resources, o.Spec.Overhead, o.Spec.PriorityClassName, o.Spec.ActiveDeadlineSeconds != nil)
	case *corev1.PersistentVolumeClaim:
		asked = append(asked, o.Spec.Resources, o.Spec.StorageClassName)
	case *corev1.Service:
		asked = append(asked, o.Spec.Type, len(o.Spec.Ports))
	default:
		return ""
	}
	encoded, err := json.Marshal(asked)
	if err != nil {
		return ""
	}
	return hostcache.Digest(map[string][]byte{"": encoded})[:16]
}

// count returns how many objects wait for a quota to allow more.
func (s *shortages) count() (count int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, short := range s.of {
		count += len(short.queued)
	}
	return count
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package views

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/informers"
	coreinformers "k8s.io/client-go/informers/core/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/utils/clock"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/internal/timeshare"
)

const (
	// listsShare is how long the controllers of a space may look for pods in a second, once they have done that for listsAtOnce.
	listsShare  = 500 * time.Millisecond
	listsAtOnce = 2 * time.Second
)

// ListsPods says which controllers compare all pods of a namespace, or all without an owner, with a selector, for each of their own
// objects: a pod that loses its owner has that done for each ReplicaSet that selects it.
func ListsPods(name string) bool {
	switch name {
	case names.ReplicaSetController, names.ReplicationControllerController, names.StatefulSetController, names.JobController,
		names.DisruptionController, names.HorizontalPodAutoscalerController:
		return true
	}
	return false
}

// NewShare returns what all controllers of a space have together. Those of a server without an account do not wait.
func NewShare(a *bounds.Account) *timeshare.Share {
	if a == nil {
		return timeshare.Unlimited()
	}
	return timeshare.New(listsShare, listsAtOnce)
}

// Paced returns a view of seen in which lists of pods take their time: a tenant may have as many objects that select pods as pods.
func Paced(p *Pace, seen informers.SharedInformerFactory) informers.SharedInformerFactory {
	return CoreView{seen, func(all coreinformers.Interface) coreinformers.Interface {
		return podView{Interface: all, list: p.list, index: p.index}
	}}
}

// Pace has lists of a controller take their time.
type Pace struct {
	ctx   context.Context // the controller's: listers have none
	clock clock.PassiveClock
	share *timeshare.Share
}

// NewPace is of a controller that runs until ctx ends.
func NewPace(ctx context.Context, c clock.PassiveClock, share *timeshare.Share) *Pace {
	return &Pace{ctx, c, share}
}

// took waits after a list that was begun at a time.
func (p *Pace) took(begun time.Time) error { return p.wait(p.clock.Since(begun)) }

func (p *Pace) wait(d time.Duration) error {
	if err := p.share.Worked(p.ctx, d); err != nil {
		return fmt.Errorf("list objects: %w", err)
	}
	return nil
}

// list waits after the list.
func (p *Pace) list(next corelisters.PodNamespaceLister, selector labels.Selector) ([]*corev1.Pod, error) {
	begun := p.clock.Now()
	pods, err := next.List(selector)
	if err != nil {
		return nil, err
	}
	return pods, p.took(begun)
}

func (p *Pace) index(all cache.Indexer) cache.Indexer { return pacedIndex{all, p} }

// pacedIndex waits after each look-up, for as long as what it found takes to be compared with a selector.
type pacedIndex struct {
	cache.Indexer
	pace *Pace
}

// comparison is about how long it takes to compare an object with a selector.
const comparison = time.Microsecond

func (i pacedIndex) ByIndex(name, value string) ([]any, error) {
	found, err := i.Indexer.ByIndex(name, value)
	if err != nil {
		return nil, err
	}
	return found, i.pace.wait(time.Duration(len(found)) * comparison)
}

// Begin returns work that can wait before it is done.
func (p *Pace) Begin() *Work { return &Work{p, p.clock.Now()} }

// Work is a controller's work that lists nothing, between Begin and End. It is not safe for concurrent use.
type Work struct {
	pace  *Pace
	begun time.Time
}

// pauseAfter is how long work goes on without a pause, once the controllers have used what they may at once.
const pauseAfter = 10 * time.Millisecond

// Pause waits for the controller's share of time, if the work has gone on for a while. It fails when the controller ends.
func (w *Work) Pause() error {
	if w.pace.clock.Since(w.begun) < pauseAfter {
		return nil
	}
	return w.End()
}

// End accounts the work's time, and waits for the controller's share of it.
func (w *Work) End() error {
	err := w.pace.took(w.begun)
	w.begun = w.pace.clock.Now()
	return err
}

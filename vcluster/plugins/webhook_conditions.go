// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/semaphore"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/admission"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	"k8s.io/apiserver/pkg/admission/plugin/webhook/predicates/rules"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	"k8s.io/client-go/informers"
	admissionlisters "k8s.io/client-go/listers/admissionregistration/v1"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/internal/heapsize"
	"github.com/berth-dev/berth/vcluster/refusal"
	"github.com/berth-dev/berth/vcluster/requests"
)

// BoundConditions has match conditions of webhooks take one of the space's slots for validation, as policies do. Call it before
// WebhooksReachBy, whose decorator must come first.
func BoundConditions(o *kubeoptions.AdmissionOptions, slots *semaphore.Weighted, factory informers.SharedInformerFactory) {
	g := o.GenericAdmission
	registration := factory.Admissionregistration().V1()
	g.Decorators = append(admission.Decorators{admission.DecoratorFunc(func(plugin admission.Interface, _ string) admission.Interface {
		switch p := plugin.(type) {
		case *mutatingwebhook.Plugin:
			configurations := registration.MutatingWebhookConfigurations()
			return &boundedMutatingWebhooks{p, configurations.Lister(), webhookSlots{slots, func() bool {
				all, err := configurations.Lister().List(labels.Everything())
				return !configurations.Informer().HasSynced() || err != nil || slices.ContainsFunc(all, func(c *admissionv1.MutatingWebhookConfiguration) bool {
					return slices.ContainsFunc(c.Webhooks, func(w admissionv1.MutatingWebhook) bool { return len(w.MatchConditions) > 0 })
				})
			}}}
		case *validatingwebhook.Plugin:
			configurations := registration.ValidatingWebhookConfigurations()
			return &boundedValidatingWebhooks{p, configurations.Lister(), webhookSlots{slots, func() bool {
				all, err := configurations.Lister().List(labels.Everything())
				return !configurations.Informer().HasSynced() || err != nil || slices.ContainsFunc(all, func(c *admissionv1.ValidatingWebhookConfiguration) bool {
					return slices.ContainsFunc(c.Webhooks, func(w admissionv1.ValidatingWebhook) bool { return len(w.MatchConditions) > 0 })
				})
			}}}
		}
		return plugin
	})}, g.Decorators...)
}

type boundedMutatingWebhooks struct {
	admission.MutationInterface
	configurations admissionlisters.MutatingWebhookConfigurationLister
	webhookSlots
}

func (b *boundedMutatingWebhooks) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	all, err := b.configurations.List(labels.Everything())
	if err != nil {
		return fmt.Errorf("list webhooks: %w", err)
	}
	held, err := holdCalls(ctx, a, min(1, len(all))) // they are called one by one
	if err != nil {
		return err
	}
	defer held.End()
	return b.evaluate(ctx, func(ctx context.Context) error { return b.MutationInterface.Admit(ctx, a, o) })
}

type boundedValidatingWebhooks struct {
	admission.ValidationInterface
	configurations admissionlisters.ValidatingWebhookConfigurationLister
	webhookSlots
}

func (b *boundedValidatingWebhooks) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	calls, err := b.calls(a)
	if err != nil {
		return err
	}
	held, err := holdCalls(ctx, a, calls)
	if err != nil {
		return err
	}
	defer held.End()
	return b.evaluate(ctx, func(ctx context.Context) error { return b.ValidationInterface.Validate(ctx, a, o) })
}

// calls is how many webhooks may be called at once for a request, or an error if they are too many.
func (b *boundedValidatingWebhooks) calls(a admission.Attributes) (int, error) {
	if rules.IsExemptAdmissionConfigurationResource(a) {
		return 0, nil
	}
	all, err := b.configurations.List(labels.Everything())
	if err != nil {
		return 0, fmt.Errorf("list webhooks: %w", err)
	}
	calls := 0
	for _, c := range all {
		for i := range c.Webhooks {
			if mayCall(&c.Webhooks[i], a) {
				calls++
			}
		}
	}
	return calls, refusal.Status(bounds.RequestWebhooks.Check(int64(calls)), a.GetResource().GroupResource(), a.GetName())
}

// holdCalls takes what calls of webhooks hold from their request.
func holdCalls(ctx context.Context, a admission.Attributes, calls int) (*bounds.Reservation, error) {
	if calls == 0 {
		return nil, nil
	}
	held := bounds.ReservationOf(ctx).Part()
	size := heapsize.Of(a.GetObject()) + heapsize.Of(a.GetOldObject())
	return held, refusal.Status(held.Grow(int64(calls)*(callMemory+callCopies*size)), a.GetResource().GroupResource(), a.GetName())
}

// mayCall reports whether a webhook has a rule for a request. By default, rules are for equivalent resources, too: those of other
// versions, and events of both groups.
func mayCall(w *admissionv1.ValidatingWebhook, a admission.Attributes) bool {
	return slices.ContainsFunc(w.Rules, func(rule admissionv1.RuleWithOperations) bool {
		if w.MatchPolicy == nil || *w.MatchPolicy != admissionv1.Exact {
			rule.APIVersions = []string{"*"}
			if a.GetResource().Resource == "events" {
				rule.APIGroups = []string{"*"}
			}
		}
		return (&rules.Matcher{Rule: rule, Attr: a}).Matches()
	})
}

// webhookSlots are those that a plugin for webhooks takes.
type webhookSlots struct {
	slots      *semaphore.Weighted
	conditions func() bool // whether any webhook has some, or may
}

// evaluate calls f while it holds a slot, but not while a webhook is called: that may write to the space.
func (w webhookSlots) evaluate(ctx context.Context, f func(context.Context) error) error {
	if !w.conditions() {
		return f(ctx)
	}
	if err := requests.AcquireValidation(ctx, w.slots); err != nil {
		return err
	}
	s := &webhookSlot{slots: w.slots, held: true}
	defer s.end()
	return f(context.WithValue(ctx, webhookSlotKey{}, s))
}

type webhookSlotKey struct{}

// webhookSlot is the slot of a request in a plugin for webhooks. Its methods do nothing without one.
type webhookSlot struct {
	slots *semaphore.Weighted

	mu    sync.Mutex
	held  bool
	calls int
	ended bool
}

func webhookSlotOf(ctx context.Context) *webhookSlot {
	s, _ := ctx.Value(webhookSlotKey{}).(*webhookSlot)
	return s
}

func (s *webhookSlot) release() {
	if s.held {
		s.held = false
		s.slots.Release(1)
	}
}

func (s *webhookSlot) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.release()
}

// beginCall gives the slot back until all calls have ended.
func (s *webhookSlot) beginCall() {
	if s == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	s.release()
}

// endCall waits for the slot again, if no other webhook is called, and however long it takes: a request's conditions are evaluated
// after a call that took too long, and even after the request has ended.
func (s *webhookSlot) endCall() {
	if s == nil || !s.lastCall() || s.slots.Acquire(context.Background(), 1) != nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || s.held || s.calls > 0 {
		s.slots.Release(1)
		return
	}
	s.held = true
}

func (s *webhookSlot) lastCall() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls--
	return s.calls == 0 && !s.ended
}

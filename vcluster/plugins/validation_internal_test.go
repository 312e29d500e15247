// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/semaphore"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	mutatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/mutating"
	validatingpolicy "k8s.io/apiserver/pkg/admission/plugin/policy/validating"
	mutatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/mutating"
	validatingwebhook "k8s.io/apiserver/pkg/admission/plugin/webhook/validating"
	"k8s.io/client-go/informers"
	admissionlisters "k8s.io/client-go/listers/admissionregistration/v1"
	"k8s.io/client-go/tools/cache"
	kubeoptions "k8s.io/kubernetes/pkg/kubeapiserver/options"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/gate"
	"github.com/berth-dev/berth/vcluster/requests"
	"github.com/berth-dev/berth/vcluster/roundtrip"
)

func attributes(of admission.Operation) admission.Attributes {
	return admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, "", "", schema.GroupVersionResource{}, "", of, nil, false, nil)
}

// L3: a space has half of the processors to validate with, however many writes it has under way and whoever waits for them.
func TestHostileValidationsOfASpaceAreBounded(t *testing.T) {
	slots := semaphore.NewWeighted(1)
	work := &bounds.Work{}
	work.Begin()
	first := bounds.WithWork(requests.WithValidation(t.Context()), work)
	for range 2 { // another version was in the store
		if err := requests.BeginValidation(first, slots, attributes(admission.Create)); err != nil {
			t.Fatal(err)
		}
	}
	second, leave := context.WithCancel(requests.WithValidation(t.Context()))
	leave()
	if err := requests.BeginValidation(second, slots, attributes(admission.Update)); !apierrors.IsTooManyRequests(err) {
		t.Errorf("a second write is validated: %v", err)
	}
	if err := requests.BeginValidation(second, slots, attributes(admission.Delete)); err != nil {
		t.Errorf("a deletion waits: %v", err)
	}
	if err := requests.BeginValidation(t.Context(), slots, attributes(admission.Create)); err != nil {
		t.Errorf("a write of the space's own server waits: %v", err)
	}
	requests.EndValidation(first)
	if !slots.TryAcquire(1) {
		t.Fatal("a validation that has ended is counted")
	}
	slots.Release(1)
	if err := requests.BeginValidation(first, slots, attributes(admission.Create)); err != nil {
		t.Fatal(err)
	}
	work.Done() // what is refused comes to no validating admission
	if !slots.TryAcquire(1) {
		t.Error("a validation counts after its work has ended")
	}
}

// A write that is admitted again, as the store had another version than was expected, gives back its slot first: webhooks and
// policies would wait for it.
func TestAWriteThatIsAdmittedAgainHoldsNoSlot(t *testing.T) {
	g := &Chain{Next: admission.NewHandler(), Calls: gate.NewLatch(), Validations: semaphore.NewWeighted(1)}
	ctx := requests.WithValidation(t.Context())
	if err := requests.BeginValidation(ctx, g.Validations, attributes(admission.Update)); err != nil {
		t.Fatal(err)
	}
	g.Next = &boundedMutation{admitAll{}, policySlots{g.Validations, func() bool { return true }}}
	short, leave := context.WithTimeout(ctx, time.Minute)
	defer leave()
	if err := g.Admit(short, attributes(admission.Update), nil); err != nil {
		t.Error(err)
	}
}

type admitAll struct{ *admission.Handler }

func (admitAll) Admit(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	return nil
}

// L3: before the informers of policies and webhooks have synced, nobody knows that there are none.
func TestHostilePoliciesAreBoundedBeforeTheyAreKnown(t *testing.T) {
	factory := informers.NewSharedInformerFactory(nil, 0) // it is never started
	o := kubeoptions.NewAdmissionOptions()
	o.GenericAdmission.Decorators = nil
	slots := semaphore.NewWeighted(1)
	BoundConditions(o, slots, factory)
	BoundPolicies(o, slots, factory)
	for name, plugin := range map[string]admission.Interface{
		mutatingpolicy.PluginName: &mutatingpolicy.Plugin{}, validatingpolicy.PluginName: &validatingpolicy.Plugin{},
		mutatingwebhook.PluginName: &mutatingwebhook.Plugin{}, validatingwebhook.PluginName: &validatingwebhook.Plugin{},
	} {
		takes := false
		switch p := o.GenericAdmission.Decorators.Decorate(plugin, name).(type) {
		case *boundedMutation:
			takes = p.bound()
		case *boundedValidation:
			takes = p.bound()
		case *boundedMutatingWebhooks:
			takes = p.conditions()
		case *boundedValidatingWebhooks:
			takes = p.conditions()
		}
		if !takes {
			t.Errorf("%s takes no slot", name)
		}
	}
}

// Upstream's list of plugins is Berth's, with one of them in another form.
func TestAllOfUpstreamsAdmissionPluginsAreRegistered(t *testing.T) {
	if got, want := New(nil).Registered(), kubeoptions.NewAdmissionOptions().GenericAdmission.Plugins.Registered(); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// A webhook may write to the space: while one is called, its request holds no slot, and it has one before and after.
func TestWebhooksAreCalledWithoutASlot(t *testing.T) {
	slots := semaphore.NewWeighted(1)
	free := func() bool {
		if !slots.TryAcquire(1) {
			return false
		}
		slots.Release(1)
		return true
	}
	webhook := boundAnswers(maxAdmitted, nil)(roundtrip.Func(func(*http.Request) (*http.Response, error) {
		if !free() {
			t.Error("a webhook is called with a slot")
		}
		return &http.Response{Body: io.NopCloser(strings.NewReader("{}"))}, nil
	}))
	call := func(ctx context.Context) error {
		if free() {
			t.Error("conditions are evaluated without a slot")
		}
		for range 2 {
			r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://webhook", strings.NewReader("{}"))
			if err != nil {
				return err
			}
			resp, err := webhook.RoundTrip(r)
			if err != nil {
				return err
			}
			if !free() {
				t.Error("an answer is waited for with a slot")
			}
			if _, err := io.ReadAll(resp.Body); err != nil {
				return err
			}
			if err := resp.Body.Close(); err != nil {
				return err
			}
			if free() {
				t.Error("after a call there is no slot")
			}
		}
		return nil
	}
	if err := (webhookSlots{slots, func() bool { return true }}).evaluate(t.Context(), call); err != nil {
		t.Error(err)
	}
	if !free() {
		t.Error("a slot is held after the end")
	}
}

// L3: a webhook that takes too long does not have what comes after it evaluated without a slot.
func TestHostileWebhooksThatTimeOutGiveTheSlotBack(t *testing.T) {
	slots := semaphore.NewWeighted(1)
	webhook := boundAnswers(maxAdmitted, nil)(roundtrip.Func(func(r *http.Request) (*http.Response, error) {
		<-r.Context().Done()
		return nil, r.Context().Err()
	}))
	err := (webhookSlots{slots, func() bool { return true }}).evaluate(t.Context(), func(ctx context.Context) error {
		call, cancel := context.WithTimeout(ctx, time.Nanosecond)
		defer cancel()
		r, err := http.NewRequestWithContext(call, http.MethodPost, "https://webhook.example", strings.NewReader("{}"))
		if err != nil {
			return err
		}
		resp, err := webhook.RoundTrip(r)
		if err == nil {
			_ = resp.Body.Close()
			t.Error("it has answered")
		}
		if slots.TryAcquire(1) {
			slots.Release(1)
			t.Error("after a call that timed out, conditions are evaluated without a slot")
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// holding notes how much memory is held while webhooks are called.
type holding struct {
	admission.ValidationInterface
	account *bounds.Account
	held    int64
}

func (h *holding) Validate(context.Context, admission.Attributes, admission.ObjectInterfaces) error {
	h.held = h.account.Used(bounds.MemoryBytes)
	return nil
}

// L3: all webhooks that validate an object are called at once, each with a copy of it: a thousand for an object of 1 MiB took
// gigabytes. A request that can't have the memory is refused before any is called, because some may be ignored if they fail.
func TestHostileCallsOfWebhooksAreTheRequestsMemory(t *testing.T) {
	stored := cache.NewIndexer(cache.MetaNamespaceKeyFunc, nil)
	hook := admissionv1.ValidatingWebhook{Rules: []admissionv1.RuleWithOperations{{
		Operations: []admissionv1.OperationType{"*"}, Rule: admissionv1.Rule{APIGroups: []string{""}, APIVersions: []string{"v1"}, Resources: []string{"configmaps"}},
	}}}
	err := stored.Add(&admissionv1.ValidatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Webhooks: []admissionv1.ValidatingWebhook{hook, hook, hook}})
	if err != nil {
		t.Fatal(err)
	}
	account := bounds.NewAccount(bounds.Limits{bounds.MemoryBytes: 10 << 20})
	calls := &holding{account: account}
	webhooks := &boundedValidatingWebhooks{
		calls, admissionlisters.NewValidatingWebhookConfigurationLister(stored), webhookSlots{nil, func() bool { return false }},
	}
	validate := func(resource string, bytes int) error {
		reservation := account.Reserve(bounds.MemoryBytes, 0)
		defer reservation.End()
		object := &corev1.ConfigMap{Data: map[string]string{"x": strings.Repeat("x", bytes)}}
		return webhooks.Validate(bounds.WithReservation(t.Context(), reservation), admission.NewAttributesRecord(object, nil, schema.GroupVersionKind{}, "default", "m",
			schema.GroupVersionResource{Version: "v1", Resource: resource}, "", admission.Create, nil, false, nil), nil)
	}
	if err := validate("configmaps", 100<<10); err != nil || calls.held < 3*callCopies*100<<10 {
		t.Errorf("three calls with 100 KiB hold %d bytes: %v", calls.held, err)
	}
	if err := validate("secrets", 2<<20); err != nil || calls.held != 0 {
		t.Errorf("without a call %d bytes are held: %v", calls.held, err)
	}
	calls.held = -1
	if err := validate("configmaps", 2<<20); !apierrors.IsRequestEntityTooLargeError(err) || calls.held != -1 {
		t.Errorf("three calls with 2 MiB: %v", err)
	}
	if used := account.Used(bounds.MemoryBytes); used != 0 {
		t.Errorf("afterwards %d bytes are held", used)
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/definitions"
)

// TestTheHostConvertsObjectsOfASharedDefinition reads and writes objects in two versions, and moves the webhook (C2, C5).
func TestTheHostConvertsObjectsOfASharedDefinition(t *testing.T) {
	t.Parallel()
	hook := startHostWebhook(t)
	host := convertedBy(hostWidgets(), hook.client())
	theirs := sharedWith(t, host)
	c := config(t, "converted")
	c.Definitions = &definitions.Source{}
	c.Definitions.Set(definitions.NewSet("", theirs))
	space := start(t, c)
	tenant, second := newTenantOf(t, space), inVersion(t, space, "v2", "widgets")
	tenant.waitForSize(t, true)
	tenant.createWidget(t, "one", 5)
	one, err := second.Get(t.Context(), "one", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if spec := fmt.Sprint(one.Object["spec"]); one.GetAPIVersion() != "example.com/v2" || spec != "map[length:5]" {
		t.Errorf("in v2, the object is %s of %s", spec, one.GetAPIVersion())
	}
	two := widget("two", map[string]any{"length": int64(7)})
	two.SetAPIVersion("example.com/v2")
	if _, err := second.Create(t.Context(), two, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if spec := fmt.Sprint(tenant.get(t, "two").Object["spec"]); spec != "map[size:7]" {
		t.Errorf("in v1, what was written in v2 is %s", spec)
	}
	list, err := second.List(t.Context(), metav1.ListOptions{})
	if err != nil || len(list.Items) != 2 {
		t.Fatalf("list in v2: %v, %v", list, err)
	}

	// Clients see that there is a webhook, and not where.
	raw, err := tenant.crds.ApiextensionsV1().RESTClient().Get().AbsPath("/apis/apiextensions.k8s.io/v1/customresourcedefinitions").DoRaw(t.Context())
	port := hook.URL[strings.LastIndex(hook.URL, ":"):]
	if err != nil || strings.Contains(string(raw), port) || strings.Contains(string(raw), "caBundle") || strings.Contains(string(raw), "127.0.0.1") {
		t.Errorf("the space shows the host's webhook: %s, %v", raw, err)
	}
	if crd := tenant.crd(t); crd.Spec.Conversion.Strategy != apiextensionsv1.WebhookConverter || *crd.Spec.Conversion.Webhook.ClientConfig.URL != "https://"+widgetsCRD+".conversion.berth.invalid/" {
		t.Errorf("the conversion is shown as %+v", crd.Spec.Conversion)
	}

	// The host's webhook moves. The space doesn't switch, and its watches go on.
	watched, err := second.Watch(t.Context(), metav1.ListOptions{ResourceVersion: list.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Stop()
	reports := func(name string) {
		t.Helper()
		event := <-watched.ResultChan()
		if one, ok := event.Object.(*unstructured.Unstructured); !ok || one.GetName() != name || fmt.Sprint(one.Object["spec"]) != "map[length:3]" {
			t.Errorf("a watch in v2 reports %v", event)
		}
	}
	tenant.createWidget(t, "three", 3)
	reports("three")
	moved := startHostWebhook(t)
	host.Spec.Conversion.Webhook.ClientConfig = moved.client()
	c.Definitions.Set(definitions.NewSet("", &definitions.Shared{CRD: theirs.CRD, InRange: true, Webhook: definitions.WebhookOf(host)}))
	before := hook.calls.Load()
	if _, err := second.Get(t.Context(), "one", metav1.GetOptions{}); err != nil || moved.calls.Load() == 0 || hook.calls.Load() != before {
		t.Errorf("after the webhook has moved: %v, with %d calls of the new one", err, moved.calls.Load())
	}
	tenant.createWidget(t, "four", 3)
	reports("four")

	// A switch away and back loses nothing.
	c.Definitions.Set(definitions.NewSet(definitions.NeverUseSystemCRDUnlessForced, &definitions.Shared{CRD: theirs.CRD, InRange: true, Webhook: definitions.WebhookOf(host)}))
	eventually(t, func() error {
		if _, err := tenant.widgets.Get(t.Context(), "one", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the shared definition is served: %w", err)
		}
		return nil
	})
	c.Definitions.Set(definitions.NewSet("", &definitions.Shared{CRD: theirs.CRD, Forced: true, InRange: true, Webhook: definitions.WebhookOf(host)}))
	eventually(t, func() error {
		one, err := second.Get(t.Context(), "one", metav1.GetOptions{})
		if err == nil && fmt.Sprint(one.Object["spec"]) != "map[length:5]" {
			t.Errorf("after a switch, the object is %v", one.Object["spec"])
		}
		return err
	})
}

// TestHostileATenantCantReachTheWebhookOfTheHost copies what the tenant sees of the definition, and what it may know of the host.
func TestHostileATenantCantReachTheWebhookOfTheHost(t *testing.T) {
	t.Parallel()
	hook := startHostWebhook(t)
	space, tenant, second := converting(t, "thief", definitions.NewSet("", sharedWith(t, convertedBy(hostWidgets(), hook.client()))))
	api := tenant.crds.ApiextensionsV1().CustomResourceDefinitions()
	tenant.createWidget(t, "one", 5)
	if _, err := second.Get(t.Context(), "one", metav1.GetOptions{}); err != nil {
		t.Fatal(err) // its client is known to the space now
	}
	visible := tenant.crd(t).Spec.Conversion.Webhook.ClientConfig
	withCA := visible.DeepCopy()
	withCA.CABundle = hook.ca()
	_, port, err := net.SplitHostPort(strings.TrimPrefix(hook.URL, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	attempts := map[string]*apiextensionsv1.WebhookClientConfig{
		"ants": visible, "bees": withCA, "cats": hook.client(), "dogs": {URL: ptr.To("https://localhost:" + port + "/"), CABundle: hook.ca()},
		"eels": {URL: ptr.To(strings.TrimSuffix(*visible.URL, "/") + ":" + port + "/convert")},
		"fish": {URL: ptr.To("https://" + strings.ToUpper(strings.TrimPrefix(*visible.URL, "https://")))},
	}
	for name, client := range attempts {
		kind := strings.ToUpper(name[:1]) + name[1:]
		tenant.define(t, plural(convertedBy(hostWidgets(), client), name, kind))
		first, second := inVersion(t, space, "v1", name), inVersion(t, space, "v2", name)
		one := widget("one", map[string]any{"size": int64(5)})
		one.SetKind(kind)
		eventually(t, func() error {
			_, err := first.Create(t.Context(), one, metav1.CreateOptions{})
			return err
		})
		_, err := second.Get(t.Context(), "one", metav1.GetOptions{})
		if err == nil || !strings.Contains(err.Error(), errClosed.Error()) && !strings.Contains(err.Error(), "only the definition that the platform shares can use") {
			t.Errorf("%s, by %v: %v, want that it is refused", name, *client.URL, err)
		}
	}
	for _, bad := range []string{definitions.WebhookScheme, strings.ToUpper(definitions.WebhookScheme), "http"} {
		client := &apiextensionsv1.WebhookClientConfig{URL: ptr.To(bad + strings.TrimPrefix(*visible.URL, "https"))}
		if _, err := api.Create(t.Context(), plural(convertedBy(hostWidgets(), client), "goats", "Goat"), metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
			t.Errorf("a definition with the URL %s: %v, want that it is invalid", *client.URL, err)
		}
		patch := encoded(t, map[string]any{"spec": map[string]any{"conversion": map[string]any{"webhook": map[string]any{"clientConfig": client}}}})
		if _, err := api.Patch(t.Context(), "ants.example.com", "application/merge-patch+json", patch, metav1.PatchOptions{}); !apierrors.IsInvalid(err) {
			t.Errorf("change a definition to the URL %s: %v, want that it is invalid", *client.URL, err)
		}
		if _, err := api.Patch(t.Context(), widgetsCRD, "application/merge-patch+json", patch, metav1.PatchOptions{}); !apierrors.IsInvalid(err) {
			t.Errorf("change the shared definition to the URL %s: %v, want that it is invalid", *client.URL, err)
		}
	}
	// What was shared becomes the tenant's own, with the URL that it had in the space.
	own := tenant.crd(t)
	own.Spec.Names.ShortNames = []string{"w"}
	if own, err = api.Update(t.Context(), own, metav1.UpdateOptions{}); err != nil || definitions.IsShared(own) {
		t.Fatalf("make the definition the tenant's own: %v", err)
	}
	eventually(t, func() error { // until then, what was shared is served, whose objects are not those of the tenant's definition
		if _, err := second.Get(t.Context(), "one", metav1.GetOptions{}); err == nil || !strings.Contains(err.Error(), `"one" not found`) {
			return fmt.Errorf("read a shared object: %w", err)
		}
		return nil
	})
	if _, err := tenant.widgets.Create(t.Context(), widget("own", map[string]any{"size": int64(5)}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := second.Get(t.Context(), "own", metav1.GetOptions{}); err == nil || !strings.Contains(err.Error(), "only the definition that the platform shares") {
		t.Errorf("read it in v2: %v", err)
	}
	hook.converts.Range(func(object, _ any) bool {
		if object != "Widget/one" {
			t.Errorf("the host's webhook was called for %s, by a definition of the tenant", object)
		}
		return true
	})
	if _, called := hook.converts.Load("Widget/one"); !called {
		t.Error("the host's webhook doesn't note what it is called for")
	}
}

// TestHostileAWebhookThatHangsBlocksNobodyElse has a tenant read what makes the host's webhook hang, many times at once (C5).
func TestHostileAWebhookThatHangsBlocksNobodyElse(t *testing.T) {
	t.Parallel()
	hook := startHostWebhook(t)
	theirs := sharedWith(t, convertedBy(hostWidgets(), hook.client()))
	gadgets := sharedWith(t, plural(convertedBy(hostWidgets(), hook.client()), "gadgets", "Gadget"))
	_, tenant, second := converting(t, "hanging", definitions.NewSet("", theirs, gadgets))
	_, neighbor, theirSecond := converting(t, "neighbor", definitions.NewSet("", theirs, gadgets))
	tenant.createWidget(t, "hang", 5)
	neighbor.createWidget(t, "one", 5)
	hook.hang.Store(true)

	const readers = 40
	began := time.Now()
	failed := make(chan error, readers)
	for range readers {
		go func() {
			_, err := second.List(context.WithoutCancel(t.Context()), metav1.ListOptions{})
			failed <- err
		}()
	}
	eventually(t, func() error {
		if now := hook.now.Load(); now < 4 {
			return fmt.Errorf("%d calls hang", now)
		}
		return nil
	})
	within := func(doing string, f func(context.Context) error) {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		defer cancel()
		if err := f(ctx); err != nil {
			t.Errorf("%s: %v", doing, err)
		}
	}
	within("read in the version that is stored", func(ctx context.Context) error {
		_, err := tenant.widgets.Get(ctx, "hang", metav1.GetOptions{})
		return err
	})
	within("read another resource of the space", func(ctx context.Context) error {
		_, err := tenant.crds.ApiextensionsV1().CustomResourceDefinitions().List(ctx, metav1.ListOptions{})
		return err
	})
	within("read in another space", func(ctx context.Context) error {
		_, err := theirSecond.Get(ctx, "one", metav1.GetOptions{})
		return err
	})
	if hook.now.Load() == 0 {
		t.Error("no call hangs any longer")
	}
	for range readers {
		if err := <-failed; err == nil || !strings.Contains(err.Error(), "the platform's conversion webhook") || !strings.Contains(err.Error(), "didn't answer within") {
			t.Errorf("a reader: %v, want that the webhook is slow", err)
		} else if strings.Contains(err.Error(), "127.0.0.1") {
			t.Errorf("the error names an address of the host: %v", err)
		}
	}
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("the readers waited %s", took)
	}
	// The webhook may learn of a call's end later than the next call begins, and the neighbor has one.
	if most := hook.most.Load(); most > 2*(4+1) {
		t.Errorf("%d calls of %d readers hung at once, want 4 for a space", most, readers)
	}
	hook.release()
	eventually(t, func() error {
		_, err := second.Get(t.Context(), "hang", metav1.GetOptions{})
		return err
	})
}

// TestHostileAWebhookAnswersNoMoreThanAnObjectMayHave has a webhook make an object large, fail, and be gone.
func TestHostileAWebhookAnswersNoMoreThanAnObjectMayHave(t *testing.T) {
	t.Parallel()
	hook := startHostWebhook(t)
	_, tenant, second := converting(t, "enlarged", definitions.NewSet("", sharedWith(t, convertedBy(hostWidgets(), hook.client()))))
	tenant.createWidget(t, "large", 5)
	tenant.createWidget(t, "one", 5)
	check := func(name, why string) {
		t.Helper()
		_, err := second.Get(t.Context(), name, metav1.GetOptions{})
		if err == nil || !strings.Contains(err.Error(), "the platform's conversion webhook of the CustomResourceDefinition "+widgetsCRD+" failed") || !strings.Contains(err.Error(), why) {
			t.Errorf("read %s: %v, want %q", name, err, why)
			return
		}
		if strings.Contains(err.Error(), "127.0.0.1") || strings.Contains(err.Error(), "secret") {
			t.Errorf("the error names what is the host's: %v", err)
		}
	}
	check("large", "is longer than")
	hook.refuse.Store(true)
	began := time.Now()
	check("one", "HTTP status 503")
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("the webhook's Retry-After made the tenant wait %s", took)
	}
	hook.refuse.Store(false)
	if _, err := second.Get(t.Context(), "one", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
	hook.CloseClientConnections()
	if err := hook.Listener.Close(); err != nil {
		t.Fatal(err)
	}
	check("one", "it can't be reached")
	if _, err := tenant.widgets.Get(t.Context(), "large", metav1.GetOptions{}); err != nil {
		t.Error(errors.Join(errors.New("read in the version that is stored"), err))
	}
}

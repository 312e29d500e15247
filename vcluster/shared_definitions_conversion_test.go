// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/vcluster"
)

// hostWebhook is a conversion webhook of the host, on loopback.
type hostWebhook struct {
	*httptest.Server
	calls, now, most atomic.Int64  // calls, those that run, and how many ran at once
	hang             atomic.Bool   // calls with an object of the name hang do
	released         chan struct{} // closed when they may end
	release          func()
	refuse           atomic.Bool // each call is answered with a status
}

// startHostWebhook starts a webhook that calls the length of a widget size in v1, and length in v2.
func startHostWebhook(t *testing.T) *hostWebhook {
	t.Helper()
	h := &hostWebhook{released: make(chan struct{})}
	h.release = sync.OnceFunc(func() { close(h.released) })
	h.Server = httptest.NewTLSServer(http.HandlerFunc(h.serve))
	t.Cleanup(func() {
		h.release()
		h.CloseClientConnections()
		h.Close()
	})
	return h
}

func (h *hostWebhook) serve(w http.ResponseWriter, r *http.Request) {
	h.calls.Add(1)
	now := h.now.Add(1)
	defer h.now.Add(-1)
	for most := h.most.Load(); now > most && !h.most.CompareAndSwap(most, now); most = h.most.Load() {
	}
	var review apiextensionsv1.ConversionReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if h.refuse.Load() {
		w.Header().Set("Retry-After", "1000")
		http.Error(w, "secret of the host", http.StatusServiceUnavailable)
		return
	}
	response := &apiextensionsv1.ConversionResponse{UID: review.Request.UID, Result: metav1.Status{Status: metav1.StatusSuccess}}
	for _, raw := range review.Request.Objects {
		one := &unstructured.Unstructured{}
		if err := one.UnmarshalJSON(raw.Raw); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		if one.GetName() == "hang" && h.hang.Load() {
			select {
			case <-h.released:
			case <-r.Context().Done():
			}
		}
		spec, _, _ := unstructured.NestedMap(one.Object, "spec")
		from, to := "size", "length"
		if one.GetAPIVersion() == "example.com/v2" {
			from, to = to, from
		}
		if length, ok := spec[from]; ok {
			spec[to] = length
			delete(spec, from)
		}
		if one.GetName() == "large" {
			spec["text"] = strings.Repeat("x", 8<<20)
		}
		one.Object["spec"] = spec
		one.SetAPIVersion(review.Request.DesiredAPIVersion)
		response.ConvertedObjects = append(response.ConvertedObjects, runtime.RawExtension{Object: one})
	}
	review.Request, review.Response = nil, response
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(review)
}

func (h *hostWebhook) ca() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: h.Certificate().Raw})
}

// client is how the host reaches the webhook.
func (h *hostWebhook) client() *apiextensionsv1.WebhookClientConfig {
	return &apiextensionsv1.WebhookClientConfig{URL: ptr.To(h.URL + "/convert"), CABundle: h.ca()}
}

// convertedBy gives a definition a second version, to which a webhook converts.
func convertedBy(crd *apiextensionsv1.CustomResourceDefinition, client *apiextensionsv1.WebhookClientConfig) *apiextensionsv1.CustomResourceDefinition {
	properties := map[string]apiextensionsv1.JSONSchemaProps{"length": {Type: "integer"}, "text": {Type: "string"}}
	second := widgetDefinition(properties).Spec.Versions[0]
	second.Name, second.Storage = "v2", false
	crd.Spec.Versions = append(crd.Spec.Versions[:1], second)
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{
		Strategy: apiextensionsv1.WebhookConverter,
		Webhook:  &apiextensionsv1.WebhookConversion{ClientConfig: client, ConversionReviewVersions: []string{"v1"}},
	}
	return crd
}

// plural gives a definition of widgets another name.
func plural(crd *apiextensionsv1.CustomResourceDefinition, name, kind string) *apiextensionsv1.CustomResourceDefinition {
	crd.Name = name + ".example.com"
	crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{Plural: name, Kind: kind}
	return crd
}

// sharedWith is what a host with this definition shares.
func sharedWith(t *testing.T, crd *apiextensionsv1.CustomResourceDefinition) *definitions.Shared {
	t.Helper()
	return &definitions.Shared{CRD: shared(t, crd), InRange: true, Webhook: definitions.WebhookOf(crd)}
}

// converting starts a space with a shared definition, and returns its widgets in the second version, too.
func converting(t *testing.T, name string, set *definitions.Set) (space *vcluster.ControlPlane, tenant tenantOf, second dynamic.ResourceInterface) {
	t.Helper()
	c := config(t, name)
	c.Account = bounds.NewAccount(nil)
	c.Definitions = &definitions.Source{}
	c.Definitions.Set(set)
	closed := &recorder{}
	c.Dial = closed.dial
	space = start(t, c)
	tenant = newTenantOf(t, space)
	tenant.waitForSize(t, true)
	return space, tenant, inVersion(t, space, "v2", "widgets")
}

func inVersion(t *testing.T, space *vcluster.ControlPlane, version, resource string) dynamic.ResourceInterface {
	t.Helper()
	config := space.Loopback()
	config.QPS = -1
	objects, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return objects.Resource(widgets.GroupResource().WithVersion(version).GroupVersion().WithResource(resource)).Namespace(metav1.NamespaceDefault)
}

func (o tenantOf) createWidget(t *testing.T, name string, size int64) {
	t.Helper()
	if _, err := o.widgets.Create(t.Context(), widget(name, map[string]any{"size": size}), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

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
	if list, err := second.List(t.Context(), metav1.ListOptions{}); err != nil || len(list.Items) != 2 {
		t.Errorf("list in v2: %v, %v", list, err)
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
	watched, err := second.Watch(t.Context(), metav1.ListOptions{ResourceVersion: one.GetResourceVersion()})
	if err != nil {
		t.Fatal(err)
	}
	defer watched.Stop()
	if event := <-watched.ResultChan(); event.Object.(*unstructured.Unstructured).GetAPIVersion() != "example.com/v2" {
		t.Errorf("a watch in v2 reports %v", event)
	}
	moved := startHostWebhook(t)
	host.Spec.Conversion.Webhook.ClientConfig = moved.client()
	c.Definitions.Set(definitions.NewSet("", &definitions.Shared{CRD: theirs.CRD, InRange: true, Webhook: definitions.WebhookOf(host)}))
	before := hook.calls.Load()
	if _, err := second.Get(t.Context(), "one", metav1.GetOptions{}); err != nil || moved.calls.Load() == 0 || hook.calls.Load() != before {
		t.Errorf("after the webhook has moved: %v, with %d calls of the new one", err, moved.calls.Load())
	}
	tenant.createWidget(t, "three", 3)
	if event := <-watched.ResultChan(); event.Object.(*unstructured.Unstructured).GetName() != "three" {
		t.Errorf("the watch reports %v", event)
	}

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
	calls := hook.calls.Load()
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
		if err == nil || !strings.Contains(err.Error(), errClosed.Error()) && !strings.Contains(err.Error(), "only the definition that the platform shares can use it") {
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
	eventually(t, func() error {
		_, err := tenant.widgets.Create(t.Context(), widget("own", map[string]any{"size": int64(5)}), metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		if _, err = second.Get(t.Context(), "own", metav1.GetOptions{}); err == nil || !strings.Contains(err.Error(), "only the definition that the platform shares") {
			return fmt.Errorf("read it in v2: %w", err)
		}
		return nil
	})
	if now := hook.calls.Load(); now != calls {
		t.Errorf("the host's webhook was called %d times by definitions of the tenant", now-calls)
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
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
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
	if most := hook.most.Load(); most > 5 {
		t.Errorf("%d calls hung at once, want 4", most)
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
	hook.Listener.Close()
	check("one", "it can't be reached")
	if _, err := tenant.widgets.Get(t.Context(), "large", metav1.GetOptions{}); err != nil {
		t.Error(errors.Join(errors.New("read in the version that is stored"), err))
	}
}

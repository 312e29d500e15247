// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package definitions_test

import (
	"context"
	"encoding/json"
	"net/url"
	"strings"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/definitions"
)

// converted is a definition whose objects a webhook of the host converts.
func converted(name string) *apiextensionsv1.CustomResourceDefinition {
	crd := hostDefinition("Widget")
	crd.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.WebhookConverter, Webhook: &apiextensionsv1.WebhookConversion{
		ConversionReviewVersions: []string{"v1"},
		ClientConfig: &apiextensionsv1.WebhookClientConfig{
			Service: &apiextensionsv1.ServiceReference{Name: name, Namespace: "of-the-host", Path: ptr.To("/convert"), Port: ptr.To[int32](9443)}, CABundle: []byte("secret"),
		},
	}}
	return crd
}

func serveShared(t *testing.T, host *apiextensionsv1.CustomResourceDefinition) *definitions.Shared {
	t.Helper()
	crd, err := definitions.Serve(host, "share")
	if err != nil {
		t.Fatal(err)
	}
	return &definitions.Shared{CRD: crd, InRange: true, Webhook: definitions.WebhookOf(host)}
}

func TestHostileSpacesDontSeeWhereAWebhookIs(t *testing.T) {
	t.Parallel()
	host := converted("hook")
	one := serveShared(t, host)
	for what, crd := range map[string]*apiextensionsv1.CustomResourceDefinition{"what clients see": one.CRD, "what the API server uses": one.Served()} {
		text, err := json.Marshal(crd)
		if err != nil || strings.Contains(string(text), `"hook"`) || strings.Contains(string(text), "of-the-host") || strings.Contains(string(text), "caBundle") {
			t.Errorf("%s names the host's webhook: %s, %v", what, text, err)
		}
		u, err := url.Parse(*crd.Spec.Conversion.Webhook.ClientConfig.URL)
		if err != nil {
			t.Fatal(err)
		}
		if name, ok := definitions.DefinitionOfWebhook(u.Hostname()); !ok || name != host.Name {
			t.Errorf("%s has the URL %s", what, u)
		}
		if isCallable := u.Scheme == definitions.WebhookScheme; isCallable != (crd != one.CRD) {
			t.Errorf("%s has the URL %s", what, u)
		}
	}
	if host.Spec.Conversion.Webhook.ClientConfig.Service == nil || one.Webhook.Client().Service.Name != "hook" {
		t.Error("the platform doesn't know where the webhook is, either")
	}
	plain := serveShared(t, hostDefinition("Gadget"))
	if plain.Served() != plain.CRD || plain.Webhook != nil {
		t.Error("a definition without a webhook is in memory twice")
	}
}

// A CA is renewed, or the service moves: spaces don't switch, but get to know it.
func TestAnotherPlaceOfAWebhookIsNoSwitch(t *testing.T) {
	t.Parallel()
	before, after := serveShared(t, converted("hook")), serveShared(t, converted("moved"))
	if !definitions.SameContent(before.CRD, after.CRD) || definitions.SameWebhook(before.Webhook, after.Webhook) || !definitions.SameWebhook(nil, nil) {
		t.Error("the content differs, or the webhooks don't")
	}
	one, other := definitions.NewSet("", before), definitions.NewSet("", after)
	if one.Version() != other.Version() || one.FullVersion() == other.FullVersion() {
		t.Error("the sets differ in their version, or don't in their full version")
	}
	source := &definitions.Source{}
	source.Set(one)
	_, changed := source.Watch()
	source.Set(definitions.NewSet("", serveShared(t, converted("hook"))))
	select {
	case <-changed:
		t.Error("the same webhook is reported as a change")
	default:
	}
	source.Set(other)
	select {
	case <-changed:
	default:
		t.Error("another webhook is not reported")
	}
	data, err := definitions.Encode(other)
	if err != nil {
		t.Fatal(err)
	}
	got, err := definitions.Decode(data)
	if err != nil || got.FullVersion() != other.FullVersion() {
		t.Errorf("the webhook doesn't reach another process: %v", err)
	}
}

func TestHostileAWebhookIsCalledAFewTimesAtOnce(t *testing.T) {
	t.Parallel()
	hook := serveShared(t, converted("hook")).Webhook
	for range 32 {
		if err := hook.Begin(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := hook.Begin(ended); err == nil {
		t.Error("it is called without end")
	}
	hook.End()
	if err := hook.Begin(t.Context()); err != nil {
		t.Error(err)
	}
}

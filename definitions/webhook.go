// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package definitions

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/utils/ptr"
)

const (
	// webhookDomain ends the host of the URL that a space's API server has of the conversion webhook of a shared definition, after the
	// name of the definition. Such a name never resolves (RFC 6761).
	webhookDomain = ".conversion.berth.invalid"
	// WebhookScheme is that of the URL by which a space's API server calls the conversion webhook of a shared definition. API servers
	// accept only https of clients, so no definition of a space has a URL like this.
	WebhookScheme = "berth"
	// maxWebhookCalls is how many calls of one webhook there are at once in a process, from all spaces. A space may have fewer.
	maxWebhookCalls = 32
)

// Webhook is the conversion webhook of a definition of the host. The platform calls it, and spaces don't show it. It doesn't change. It
// is safe for concurrent use.
type Webhook struct {
	client *apiextensionsv1.WebhookClientConfig
	calls  chan struct{} // has one for each call
}

// NewWebhook returns the webhook that a configuration leads to; nil if that is nil.
func NewWebhook(client *apiextensionsv1.WebhookClientConfig) *Webhook {
	if client == nil {
		return nil
	}
	return &Webhook{client: client, calls: make(chan struct{}, maxWebhookCalls)}
}

// WebhookOf returns the conversion webhook of a definition of the host; nil if it has none.
func WebhookOf(host *apiextensionsv1.CustomResourceDefinition) *Webhook {
	if !hasWebhook(host) {
		return nil
	}
	return NewWebhook(host.Spec.Conversion.Webhook.ClientConfig.DeepCopy())
}

// Client says how the platform reaches the webhook. It must not be changed. It is nil without a webhook.
func (w *Webhook) Client() *apiextensionsv1.WebhookClientConfig {
	if w == nil {
		return nil
	}
	return w.client
}

// Begin waits until the webhook may be called once more. It returns ctx's error if that ends before. End must follow a Begin that returns
// nil.
func (w *Webhook) Begin(ctx context.Context) error {
	select {
	case w.calls <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// End notes that a call has ended.
func (w *Webhook) End() { <-w.calls }

// version is the same for webhooks that are reached in the same way. It is empty without a webhook.
func (w *Webhook) version() string {
	if w == nil {
		return ""
	}
	content, _ := json.Marshal(w.client) // texts and numbers can always be encoded
	hash := sha256.Sum256(content)
	return hex.EncodeToString(hash[:])
}

// SameWebhook reports whether the platform reaches two webhooks in the same way, or both are nil.
func SameWebhook(a, b *Webhook) bool { return a.version() == b.version() }

// DefinitionOfWebhook returns the name of the shared definition whose conversion webhook has the host in its URL, as a space's API server
// has it.
func DefinitionOfWebhook(host string) (name string, ok bool) {
	return strings.CutSuffix(host, webhookDomain)
}

// hasWebhook reports whether objects of a definition are converted by a webhook that can be called.
func hasWebhook(crd *apiextensionsv1.CustomResourceDefinition) bool {
	c := crd.Spec.Conversion
	return converts(crd) && c.Webhook != nil && c.Webhook.ClientConfig != nil
}

func converts(crd *apiextensionsv1.CustomResourceDefinition) bool {
	return crd.Spec.Conversion != nil && crd.Spec.Conversion.Strategy == apiextensionsv1.WebhookConverter
}

// hideWebhook replaces how the host reaches the webhook of a definition by a URL that is valid and leads nowhere.
func hideWebhook(crd *apiextensionsv1.CustomResourceDefinition, scheme string) {
	crd.Spec.Conversion.Webhook.ClientConfig = &apiextensionsv1.WebhookClientConfig{URL: ptr.To(scheme + "://" + crd.Name + webhookDomain + "/")}
}

// Callable returns a definition as the API server of a space uses it, where crd is what clients see. Only by the URL of its webhook, the
// platform is asked to call the host's: no client can write it. All else is shared with crd.
func Callable(crd *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.CustomResourceDefinition {
	if !hasWebhook(crd) {
		return crd
	}
	used := *crd
	used.Spec.Conversion = crd.Spec.Conversion.DeepCopy()
	hideWebhook(&used, WebhookScheme)
	return &used
}

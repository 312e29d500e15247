// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package storage

import (
	"context"
	"fmt"
	"sync"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiextensionsapiserver "k8s.io/apiextensions-apiserver/pkg/apiserver"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/admissionregistration"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/expressions"
	"github.com/berth-dev/berth/vcluster/registry"
)

// schemaMemory is how many times their accounted size definitions and policies take in memory. The process's memory guard
// counts them so, too.
const schemaMemory = 10

// storedResource is a resource, and where it is stored.
type storedResource struct {
	prefix   string
	resource schema.GroupResource
}

// schemaResources are the resources of which an API server holds more than what is stored.
var schemaResources = []storedResource{
	{definitionsPrefix, definitionsResource},
	{"/registry/validatingadmissionpolicies/", admissionregistration.Resource("validatingadmissionpolicies")},
	{"/registry/mutatingadmissionpolicies/", admissionregistration.Resource("mutatingadmissionpolicies")},
	{"/registry/validatingwebhookconfigurations/", admissionregistration.Resource("validatingwebhookconfigurations")},
	{"/registry/mutatingwebhookconfigurations/", admissionregistration.Resource("mutatingwebhookconfigurations")},
}

func hasSchemaBytes(resource schema.GroupResource) bool {
	for _, r := range schemaResources {
		if r.resource == resource {
			return true
		}
	}
	return false
}

// webhookBytes are accounted for each webhook, so that a space has at most a thousand: each is compared with each request, and all
// that validate it are called at once.
const webhookBytes = 16 << 10

// schemaBytes is the accounted size of an object: that in the store, and what its expressions take once they are compiled.
func schemaBytes(stored int64, object runtime.Object) int64 {
	return stored + expressions.In(object).Memory()/schemaMemory + webhookBytes*webhooksOf(object)
}

func webhooksOf(object runtime.Object) int64 {
	switch c := object.(type) {
	case *admissionregistration.ValidatingWebhookConfiguration:
		return int64(len(c.Webhooks))
	case *admissionregistration.MutatingWebhookConfiguration:
		return int64(len(c.Webhooks))
	case *admissionv1.ValidatingWebhookConfiguration: // as it is stored
		return int64(len(c.Webhooks))
	case *admissionv1.MutatingWebhookConfiguration:
		return int64(len(c.Webhooks))
	}
	return 0
}

// schemaUse sets, once, a space's account to what is in its store.
type schemaUse struct {
	account *bounds.Account
	reader  *registry.Reader

	mu      sync.Mutex
	counted bool
}

func (u *schemaUse) count(ctx context.Context) error {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.counted {
		return nil
	}
	var definitions, size int64
	ctx = bounds.WithReservation(ctx, nil) // it is not the request's
	for _, r := range schemaResources {
		definition := r.resource == definitionsResource
		decoder := legacyscheme.Codecs.UniversalDeserializer()
		if definition {
			decoder = apiextensionsapiserver.Codecs.UniversalDeserializer()
		}
		if err := u.reader.Scan(ctx, r.prefix, registry.Page, func(_ string, value []byte) bool {
			if definition {
				definitions++
			}
			object, _, err := decoder.Decode(value, nil, nil)
			if err != nil {
				object = nil // nothing reads it either
			}
			size += schemaBytes(int64(len(value)), object)
			return true
		}); err != nil {
			return fmt.Errorf("count definitions and policies: %w", err)
		}
	}
	u.account.Set(bounds.CustomResourceDefinitions, definitions)
	u.account.Set(bounds.SchemaBytes, size)
	u.counted = true
	return nil
}

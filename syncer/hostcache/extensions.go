// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"context"
	"errors"
	"fmt"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/syncer/resources"
)

// crd returns the name of the definition of an extension.
func crd(r resources.Resource) string { return r.GVR().GroupResource().String() }

// extend reads the host's definitions of the enabled extensions.
func (h *Host) extend(ctx context.Context) error {
	for _, r := range resources.Table() {
		if !r.Extension || !h.Sync.On(r.Name) {
			continue
		}
		version := r.GVK().Version
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := h.Reader.Get(ctx, client.ObjectKey{Name: crd(r)}, definition); err != nil {
			if apierrors.IsNotFound(err) {
				return fmt.Errorf("sync of %s: the host has no CustomResourceDefinition %s; install it, or disable the resource", r.Name, crd(r))
			}
			return fmt.Errorf("read the host's definition of %s: %w", r.Name, err)
		}
		shared, err := definitions.ForSync(definition, version)
		switch {
		case errors.Is(err, definitions.ErrNotServed):
			return fmt.Errorf("sync of %s: the host's CustomResourceDefinition %s does not serve version %s; install one that does, or disable the resource", r.Name, crd(r), version)
		case err != nil:
			return fmt.Errorf("sync of %s: the host's CustomResourceDefinition: %w; install another one, or disable the resource", r.Name, err)
		}
		h.Definitions[r.Name] = shared
	}
	return nil
}

// SyncedDefinitions returns the definitions that are forced on a space of which this is synced. All spaces share them.
func (h *Host) SyncedDefinitions(sync resources.SyncOptions) (all []*definitions.Shared) {
	for _, r := range resources.Table() {
		if shared := h.Definitions[r.Name]; shared != nil && sync.On(r.Name) {
			all = append(all, shared)
		}
	}
	return all
}

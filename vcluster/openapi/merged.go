// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"golang.org/x/sync/semaphore"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/controller/openapi/builder"
	apiextensionsfeatures "k8s.io/apiextensions-apiserver/pkg/features"
	"k8s.io/apiserver/pkg/server/mux"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	openapimerge "k8s.io/kube-openapi/pkg/aggregator"
	"k8s.io/kube-openapi/pkg/handler"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/berth-dev/berth/internal/heapsize"
	"github.com/berth-dev/berth/vcluster/refusal"
	"github.com/berth-dev/berth/vcluster/requests"
)

// describedBytes is the largest set of CRDs, encoded, that version 2 describes.
// Its document takes several times that, and a tenant chooses it.
const describedBytes = 4 << 20

// mergedDocuments are documents of version 2, each of which holds all that a
// space serves.
type mergedDocuments struct {
	base *spec.Swagger // of the first server of a chain and the built-in APIs
	crds *spec.Swagger // of CRDs themselves, to which the space's are added
	none http.Handler  // for spaces without CRDs

	making *semaphore.Weighted // one document is made at a time
	kept   documentCache
}

// newMergedDocuments takes the documents of the three servers of a chain.
func newMergedDocuments(first, builtin, crds *spec.Swagger) (*mergedDocuments, error) {
	base := *first
	base.Paths, base.Definitions, base.Parameters = nil, nil, nil
	for _, s := range []*spec.Swagger{first, builtin} {
		if err := openapimerge.MergeSpecsIgnorePathConflictRenamingDefinitionsAndParameters(&base, s); err != nil {
			return nil, fmt.Errorf("merge OpenAPI documents: %w", err)
		}
	}
	m := &mergedDocuments{base: &base, crds: crds, making: semaphore.NewWeighted(1)}
	var err error
	m.none, err = m.make(context.Background(), nil)
	return m, err
}

// handler returns what serves the document of a space that has these CRDs.
func (m *mergedDocuments) handler(
	ctx context.Context, u *documentUser, crds []*apiextensionsv1.CustomResourceDefinition,
) (http.Handler, error) {
	crds = slices.DeleteFunc(slices.Clone(crds), func(c *apiextensionsv1.CustomResourceDefinition) bool {
		return !apihelpers.IsCRDConditionTrue(c, apiextensionsv1.Established)
	})
	if len(crds) == 0 {
		return m.none, nil
	}
	slices.SortFunc(crds, func(a, b *apiextensionsv1.CustomResourceDefinition) int { return cmp.Compare(a.Name, b.Name) })
	key, err := keyOf(crds)
	if err != nil {
		return nil, err
	}
	if h, ok := m.kept.get(u, key); ok {
		return h, nil
	}
	for _, turn := range []*semaphore.Weighted{u.making, m.making} { // the space's, then among spaces
		if err := turn.Acquire(ctx, 1); err != nil {
			return nil, fmt.Errorf("wait for other OpenAPI documents: %w", err)
		}
		defer turn.Release(1)
		if h, ok := m.kept.get(u, key); ok {
			return h, nil
		}
	}
	made, kept := mergedCost(crds)
	_, read := requests.Reading(ctx)
	defer read.End()
	if err := read.Grow(made); err != nil {
		return nil, fmt.Errorf("describe all CRDs in one document; those of %s are smaller: %w",
			openAPIV3Path, refusal.Status(err, apiextensionsv1.Resource("customresourcedefinitions"), ""))
	}
	h, err := panicsAsErrors("describe CRDs", func() (http.Handler, error) { return m.make(ctx, crds) })
	if err != nil {
		return nil, err
	}
	read.End() // or there might be no place for what is kept
	m.kept.add(u, key, h, kept)
	return h, nil
}

// servedCost is about what an answer takes while it is written, of which the document itself may no longer be kept by then.
func servedCost(crds []*apiextensionsv1.CustomResourceDefinition) int64 {
	const builtIn = 5 << 20 // as measured: the APIs that each space has
	if len(crds) == 0 {
		return 0 // all spaces have the same
	}
	_, kept := mergedCost(crds)
	return builtIn + kept
}

// mergedCost is about what it takes to make a document, and what is kept of it: as measured, for each version, and in
// multiples of what the versions take in memory.
func mergedCost(crds []*apiextensionsv1.CustomResourceDefinition) (made, kept int64) {
	const madeVersion, keptVersion, madeFactor = 400 << 10, 100 << 10, 4
	for _, c := range crds {
		size := heapsize.Of(c.Spec.Versions)
		made += int64(len(c.Spec.Versions))*madeVersion + madeFactor*size
		kept += int64(len(c.Spec.Versions))*keptVersion + size
	}
	return made, kept
}

var errDescribed = errors.New("the CRDs are too large to be described in one document; read those of " + openAPIV3Path)

// keyOf identifies all of the CRDs that their description is made of, so that
// spaces share a document only if theirs are equal.
func keyOf(crds []*apiextensionsv1.CustomResourceDefinition) (key documentKey, err error) {
	hash := sha256.New()
	var size int
	for _, c := range crds {
		encoded, err := json.Marshal([]any{c.Name, c.Spec, c.Status.AcceptedNames})
		if err != nil {
			return key, fmt.Errorf("encode CRD %s: %w", c.Name, err)
		}
		if size += len(encoded); size > describedBytes {
			return key, errDescribed
		}
		_, _ = hash.Write(encoded)
	}
	return documentKey(hash.Sum(nil)), nil
}

// make makes a document as upstream does: the server of CRDs adds the space's
// to its own, and the aggregator reads that and adds it to the others. It leaves
// off when ctx has ended.
func (m *mergedDocuments) make(ctx context.Context, crds []*apiextensionsv1.CustomResourceDefinition) (http.Handler, error) {
	described := []*spec.Swagger{}
	for _, c := range crds {
		versions, err := describeCRD(ctx, c)
		if ctx.Err() != nil {
			return nil, fmt.Errorf("describe CRDs: %w", context.Cause(ctx))
		}
		if err != nil {
			continue // as upstream: the others are described
		}
		described = append(described, versions...)
	}
	extensions, err := builder.MergeSpecs(m.crds, described...)
	if err != nil {
		return nil, fmt.Errorf("merge descriptions of CRDs: %w", err)
	}
	encoded, err := extensions.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encode descriptions of CRDs: %w", err)
	}
	last := &spec.Swagger{}
	if err := last.UnmarshalJSON(encoded); err != nil {
		return nil, fmt.Errorf("decode descriptions of CRDs: %w", err)
	}

	if ctx.Err() != nil {
		return nil, fmt.Errorf("describe CRDs: %w", context.Cause(ctx))
	}
	// Merging writes to the first document's maps, and to the extensions of a
	// definition that the other has, too. Both are shared.
	merged := *m.base
	paths := *m.base.Paths
	paths.Paths = maps.Clone(paths.Paths)
	merged.Paths, merged.Definitions, merged.Parameters = &paths, maps.Clone(m.base.Definitions), maps.Clone(m.base.Parameters)
	for name := range last.Definitions {
		if own, ok := merged.Definitions[name]; ok {
			own.Extensions = maps.Clone(own.Extensions)
			merged.Definitions[name] = own
		}
	}
	if err := openapimerge.MergeSpecsIgnorePathConflictRenamingDefinitionsAndParameters(&merged, last); err != nil {
		return nil, fmt.Errorf("merge OpenAPI documents: %w", err)
	}
	// What serves it encodes it in goroutines of its own, where a panic would end
	// the process: try it here.
	if encoded, err = merged.MarshalJSON(); err != nil {
		return nil, fmt.Errorf("encode OpenAPI document: %w", err)
	}
	if _, err := handler.ToProtoBinary(encoded); err != nil {
		return nil, fmt.Errorf("encode OpenAPI document: %w", err)
	}
	served := mux.NewPathRecorderMux("merged-openapi")
	handler.NewOpenAPIService(&merged).RegisterOpenAPIVersionedService(openAPIV2Path, served)
	return served, nil
}

// describeCRD describes the served versions of a CRD, each by itself: to merge
// each with those before it would take time that grows with their square.
func describeCRD(ctx context.Context, c *apiextensionsv1.CustomResourceDefinition) ([]*spec.Swagger, error) {
	var versions []*spec.Swagger
	for _, v := range c.Spec.Versions {
		if !v.Served {
			continue
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		s, err := builder.BuildOpenAPIV2(c, v.Name, builder.Options{
			V2: true, IncludeSelectableFields: utilfeature.DefaultFeatureGate.Enabled(apiextensionsfeatures.CustomResourceFieldSelectors),
		})
		if err != nil {
			return nil, fmt.Errorf("describe CRD %s: %w", c.Name, err)
		}
		// Those of the server itself are pruned, too, and must be alike.
		s.Definitions = handler.PruneDefaults(s.Definitions)
		versions = append(versions, s)
	}
	return versions, nil
}

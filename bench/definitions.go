// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/bench/internal/probe"
	"github.com/berth-dev/berth/bench/internal/report"
	"github.com/berth-dev/berth/bench/internal/side"
)

const (
	// definitionParts and definitionFields make a schema of 13 KiB, about half of the median of cert-manager's.
	definitionParts, definitionFields = 8, 10
	definitionGroup                   = "bench.example.com"
)

// defined is what the definitions of one side cost.
type defined struct {
	each   probe.Footprint
	serves []float64 // seconds from each request to create a definition until its objects can be listed
}

// measureDefinitions measures what CustomResourceDefinitions of tenants cost in many awake spaces, and how long they take to be served.
func measureDefinitions(ctx context.Context, b *bench, s *sides) error {
	stock, err := b.define(ctx, s, side.Stock, b.stockSpaces)
	if err != nil {
		return err
	}
	if err := s.end(side.Stock); err != nil {
		return err
	}
	spaces, err := b.define(ctx, s, side.Berth, b.crdSpaces)
	if err != nil {
		return err
	}
	const kib = 1 << 10
	r := &b.report
	r.Add("crd_rss_kib", "KiB", spaces.each.RSSMiB*kib, stock.each.RSSMiB*kib, report.AtMostShare(1))
	r.Add("crd_heap_kib", "KiB", spaces.each.HeapMiB*kib, stock.each.HeapMiB*kib, report.Target{})
	r.Add("crd_serve_s", "s", report.Percentile(spaces.serves, 50), report.Percentile(stock.serves, 50), report.AtMostShare(definitionServes))
	r.Add("crd_serve_s_p99", "s", report.Percentile(spaces.serves, 99), report.Percentile(stock.serves, 99), report.Target{})
	r.Note("crd_rss_kib: slope over %d definitions in each of %d awake spaces; stock's over as many in each of %d servers", b.crds, b.crdSpaces, b.stockSpaces)
	return nil
}

// definitionServes is the share of stock's time that a definition may take until it is served: it is the same code.
const definitionServes = 1.1

// define starts control planes of a side, and creates definitions in each.
func (b *bench) define(ctx context.Context, s *sides, name string, n int) (d defined, err error) {
	c, err := s.get(ctx, name)
	if err != nil {
		return d, err
	}
	b.say("%s: starting %d", name, n+1)
	planes := make([]*plane, n)
	first, _, err := c.start(ctx, "bench-crds-first") // makes what a process makes once
	if err != nil {
		return d, err
	}
	if _, err := b.defineIn(ctx, first); err != nil {
		return d, err
	}
	for i := range planes {
		if planes[i], _, err = c.start(ctx, fmt.Sprint("bench-crds-", i)); err != nil {
			return d, err
		}
	}
	before, err := b.rest(ctx, c)
	if err != nil {
		return d, err
	}
	heapBefore, err := b.profile(ctx, c, "before")
	if err != nil {
		return d, err
	}
	for _, p := range planes {
		seconds, err := b.defineIn(ctx, p)
		if err != nil {
			return d, err
		}
		d.serves = append(d.serves, seconds...)
	}
	after, err := b.rest(ctx, c)
	if err != nil {
		return d, err
	}
	d.each = after.Minus(before, n*b.crds)
	heapAfter, err := b.profile(ctx, c, "after")
	if err != nil || name == side.Stock {
		return d, err
	}
	return d, b.explainMemory("a definition", heapBefore, heapAfter, n*b.crds)
}

// defineIn creates definitions in a control plane, one after the other, and returns how long each took to be served.
func (b *bench) defineIn(ctx context.Context, p *plane) (seconds []float64, err error) {
	for i := range b.crds {
		took, err := p.define(ctx, i)
		if err != nil {
			return nil, err
		}
		seconds = append(seconds, took)
	}
	return seconds, nil
}

// define creates a definition in a control plane, and returns how many seconds it takes until it is served.
func (p *plane) define(ctx context.Context, i int) (float64, error) {
	client, err := apiextensions.NewForConfig(rest.CopyConfig(p.config))
	if err != nil {
		return 0, fmt.Errorf("make client of %s: %w", p.name, err)
	}
	crd := newDefinition(i)
	begin := time.Now()
	if _, err := client.ApiextensionsV1().CustomResourceDefinitions().Create(ctx, crd, metav1.CreateOptions{}); err != nil {
		return 0, fmt.Errorf("create a definition in %s: %w", p.name, err)
	}
	err = p.awaitServed(ctx, client, crd)
	return time.Since(begin).Seconds(), err
}

// awaitServed waits until a control plane serves the objects of a definition.
func (p *plane) awaitServed(ctx context.Context, client apiextensions.Interface, crd *apiextensionsv1.CustomResourceDefinition) error {
	objects := client.ApiextensionsV1().RESTClient()
	err := wait.PollUntilContextTimeout(ctx, readyPoll, side.ReadyTime, true, func(ctx context.Context) (bool, error) {
		err := objects.Get().AbsPath("/apis", definitionGroup, "v1", crd.Spec.Names.Plural).Do(ctx).Error()
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil, err
	})
	if err != nil {
		return fmt.Errorf("wait until %s serves %s: %w", p.name, crd.Name, err)
	}
	return nil
}

// newDefinition returns a definition with a schema as operators have them: objects in each other, whose fields have descriptions.
func newDefinition(i int) *apiextensionsv1.CustomResourceDefinition {
	spec := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{}}
	for part := range definitionParts {
		object := apiextensionsv1.JSONSchemaProps{Type: "object", Description: "A part of the specification.", Properties: map[string]apiextensionsv1.JSONSchemaProps{}}
		for field := range definitionFields {
			object.Properties[fmt.Sprint("field", field)] = apiextensionsv1.JSONSchemaProps{
				Type: "string", Pattern: "^[a-z]*$", Description: fmt.Sprintf("The field %d of the part %d says something that takes a sentence to explain.", field, part),
			}
		}
		spec.Properties[fmt.Sprint("part", part)] = object
	}
	plural := fmt.Sprintf("things%d", i)
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: plural + "." + definitionGroup},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: definitionGroup, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: fmt.Sprintf("thing%d", i), Kind: fmt.Sprintf("Thing%d", i), ListKind: fmt.Sprintf("Thing%dList", i)},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true,
				Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{
					Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"spec": spec},
				}},
			}},
		},
	}
}

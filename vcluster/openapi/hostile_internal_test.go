// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package openapi

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	genericapiserver "k8s.io/apiserver/pkg/server"
	openapibuilder "k8s.io/kube-openapi/pkg/builder"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/internal/testcrd"
)

func documentsForTests(t *testing.T) *mergedDocuments {
	t.Helper()
	var c genericapiserver.Config
	Describe(&c)
	c.OpenAPIConfig.Info.Version = "v1"
	builtin, err := openapibuilder.BuildOpenAPIDefinitionsForResources(c.OpenAPIConfig, "io.k8s.api.core.v1.ConfigMap")
	if err != nil {
		t.Fatal(err)
	}
	empty := func() *spec.Swagger {
		s, err := openapibuilder.BuildOpenAPIDefinitionsForResources(c.OpenAPIConfig)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	m, err := newMergedDocuments(empty(), builtin, empty())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func body(t *testing.T, m *mergedDocuments, crds ...*apiextensionsv1.CustomResourceDefinition) string {
	t.Helper()
	h, err := m.handler(t.Context(), newDocumentUser(nil), crds)
	if err != nil {
		t.Fatal(err)
	}
	b, err := fetch(h, openAPIV2Path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// T2: documents are shared by what the CRDs are, and what one tenant's describe
// is in no other's: neither by a name that collides with a built-in type's, nor
// by a change at the right moment.
func TestAHostileCRDIsDescribedToItsOwnSpaceOnly(t *testing.T) {
	m := documentsForTests(t)
	plain := body(t, m)
	base, err := json.Marshal(m.base.Definitions)
	if err != nil {
		t.Fatal(err)
	}
	// Its definition has the name of the built-in ConfigMap's.
	object := &apiextensionsv1.JSONSchemaProps{Type: "object"}
	builtin := m.base.Definitions["io.k8s.api.core.v1.ConfigMap"]
	alike := &apiextensionsv1.JSONSchemaProps{}
	encoded, err := json.Marshal(builtin.SchemaProps)
	if err == nil {
		err = json.Unmarshal(encoded, alike)
	}
	if err != nil {
		t.Fatal(err)
	}
	delete(alike.Properties, "metadata")
	for name, schema := range map[string]*apiextensionsv1.JSONSchemaProps{"alike": alike, "other": object} {
		if hostile := body(t, m, testcrd.New("core.api.k8s.io", "ConfigMap", schema)); !strings.Contains(hostile, "core.api.k8s.io") {
			t.Errorf("%s: the space's own CRD is not described to it", name)
		}
	}
	if after := body(t, m); after != plain {
		t.Error("the document of spaces without CRDs has changed")
	}
	if now, err := json.Marshal(m.base.Definitions); err != nil || !cmp.Equal(string(base), string(now)) {
		t.Errorf("shared definitions have changed (%v)", err)
	}
	other := body(t, m, testcrd.New("example.com", "Boat", object))
	if strings.Contains(other, "core.api.k8s.io") {
		t.Error("another space's CRD is described")
	}
	if strings.Contains(body(t, m, testcrd.New("example.com", "Boat", &apiextensionsv1.JSONSchemaProps{Type: "object", Description: "quagga"})), "quagga") ==
		strings.Contains(other, "quagga") {
		t.Error("two schemas of one CRD have one document")
	}
}

// A tenant's documents are bounded, and making one keeps no other space waiting
// for what is there.
func TestDocumentsThatATenantMakesLargeAreRefused(t *testing.T) {
	m := documentsForTests(t)
	var large []*apiextensionsv1.CustomResourceDefinition
	for i := range 12 {
		large = append(large, testcrd.New("example.com", fmt.Sprint("Kind", i),
			&apiextensionsv1.JSONSchemaProps{Type: "object", Description: strings.Repeat("x", 1<<20)}))
	}
	if _, err := m.handler(t.Context(), newDocumentUser(nil), large); err == nil || !strings.Contains(err.Error(), openAPIV3Path) {
		t.Errorf("12 MiB of CRDs: %v, want it refused with what to read instead", err)
	}
	// As if another's were being made, for ever.
	if err := m.making.Acquire(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	defer m.making.Release(1)
	body(t, m)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := m.handler(ctx, newDocumentUser(nil), large[:1]); err == nil {
		t.Error("a request that has ended waits on")
	}
}

// L3 (S2): what it takes to make a document is the request's, and what is kept of it the space's, as long as it is kept.
func TestHostileDocumentsAreAccounted(t *testing.T) {
	m := documentsForTests(t)
	object := &apiextensionsv1.JSONSchemaProps{Type: "object"}
	small := bounds.NewAccount(bounds.Limits{bounds.MemoryBytes: 4 << 20})
	u := newDocumentUser(small)
	ask := func(c *apiextensionsv1.CustomResourceDefinition) error {
		request := small.Reserve(bounds.MemoryBytes, 0)
		defer request.End()
		_, err := m.handler(bounds.WithReservation(t.Context(), request), u, []*apiextensionsv1.CustomResourceDefinition{c})
		return err
	}
	var last int64
	for i, n := range []int{1, 5} {
		if err := ask(testcrd.WithVersions(testcrd.New("example.com", fmt.Sprint("Kind", i), object), n)); err != nil {
			t.Fatal(err)
		}
		used := small.Used(bounds.MemoryBytes)
		if used < int64(n)*64<<10 || used <= last || used > 2<<20 {
			t.Errorf("%d bytes are accounted for a document of %d versions that is kept", used, n)
		}
		last = used
	}
	if err := ask(testcrd.WithVersions(testcrd.New("example.com", "Many", object), 20)); err == nil || !strings.Contains(err.Error(), openAPIV3Path) ||
		!apierrors.IsRequestEntityTooLargeError(err) {
		t.Errorf("20 versions: %v, want it refused with what to read instead", err)
	}
	m.kept.leave(u)
	if used := small.Used(bounds.MemoryBytes); used != 0 {
		t.Errorf("%d bytes are accounted of a space that has stopped", used)
	}
}

// L3: spaces take turns at what makes documents, whatever one of them asks for, and each keeps one document.
func TestHostileDocumentsOfOneSpaceLeaveOthersTheirs(t *testing.T) {
	m := documentsForTests(t)
	object := &apiextensionsv1.JSONSchemaProps{Type: "object"}
	flooding, other := newDocumentUser(nil), newDocumentUser(nil)
	ask := func(ctx context.Context, u *documentUser, kind string) error {
		_, err := m.handler(ctx, u, []*apiextensionsv1.CustomResourceDefinition{testcrd.New("example.com", kind, object)})
		return err
	}
	if err := ask(t.Context(), other, "Boat"); err != nil {
		t.Fatal(err)
	}
	for i := range 2 * keptDocuments {
		if err := ask(t.Context(), flooding, fmt.Sprint("Kind", i)); err != nil {
			t.Fatal(err)
		}
	}
	kept := func() (n int) {
		for _, d := range m.kept.kept {
			for _, u := range []*documentUser{flooding, other} {
				if _, ok := d.users[u]; ok {
					n++
				}
			}
		}
		return n
	}
	if n := kept(); n != 2 {
		t.Errorf("%d documents are kept of two spaces, want one each", n)
	}

	// Many requests of one space wait while a document is made. Another space's comes right after that and one of theirs.
	synctest.Test(t, func(t *testing.T) {
		if err := m.making.Acquire(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		var flood sync.WaitGroup
		var made atomic.Int64
		for i := range 20 {
			flood.Go(func() {
				if ask(ctx, flooding, fmt.Sprint("Late", i)) == nil {
					made.Add(1)
				}
			})
		}
		synctest.Wait() // until all wait
		answered := make(chan int64, 1)
		flood.Go(func() {
			if err := ask(t.Context(), other, "Ship"); err != nil {
				t.Error(err)
			}
			answered <- made.Load()
		})
		synctest.Wait()
		m.making.Release(1)
		if n := <-answered; n > 3 {
			t.Errorf("%d documents of another space are made first", n)
		}
		cancel()
		flood.Wait()
		if err := ask(ctx, flooding, "Never"); err == nil {
			t.Error("a document is made for a client that has left")
		}
	})
	m.kept.leave(flooding)
	m.kept.leave(other)
	if n := kept(); n != 0 {
		t.Errorf("%d documents are kept of spaces that have stopped", n)
	}
}

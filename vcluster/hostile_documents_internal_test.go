// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensionsclient "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/internal/testcrd"
	"github.com/berth-dev/berth/vcluster/loopback"
	"github.com/berth-dev/berth/vcluster/pki"
)

// L3 (S2): OpenAPI documents of a space's CRDs take no memory that stays, however many there are, and what it takes to make
// one is accounted.
func TestHostileDocumentsOfManyVersionsAreNotKept(t *testing.T) {
	ca, err := pki.OpenCA(t.TempDir(), "serving")
	if err != nil {
		t.Fatal(err)
	}
	account := bounds.NewAccount(bounds.Limits{bounds.MemoryBytes: 16 << 20})
	p, err := Start(t.Context(), Config{Name: "described", Dir: t.TempDir(), Endpoint: "https://127.0.0.1:1", ServingCA: ca.PEM(), Account: account})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := p.Stop(t.Context()); err != nil {
			t.Error(err)
		}
	}()
	client, err := apiextensionsclient.NewForConfig(p.Loopback())
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(p.Loopback())
	if err != nil {
		t.Fatal(err)
	}
	get := func(path, accept string) (int, string) {
		r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, loopback.Host+path, http.NoBody)
		r.RequestURI = ""
		r.Header.Set("Accept", accept)
		resp, err := transport.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = resp.Body.Close() }()
		var said strings.Builder
		if _, err := fmt.Fprint(&said, resp.Header.Get("Location")); err != nil {
			t.Fatal(err)
		}
		return resp.StatusCode, said.String()
	}
	const definitions, each = 10, 20
	object := &apiextensionsv1.JSONSchemaProps{Type: "object"}
	create := func(group, kind string, n int) {
		t.Helper()
		if _, err := client.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(),
			testcrd.WithVersions(testcrd.New(group, kind, object), n), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create("example.com", "First", 1)
	served := func(path string) {
		t.Helper()
		for end := time.Now().Add(time.Minute); ; time.Sleep(20 * time.Millisecond) {
			code, _ := get(path, "application/json")
			if code == http.StatusOK {
				return
			}
			if time.Now().After(end) {
				t.Fatalf("%s gets %d", path, code)
			}
		}
	}
	served("/openapi/v3/apis/example.com/v1")
	before := heapInUse()
	for i := range definitions {
		create("example.com", fmt.Sprint("Kind", i), each)
	}
	for i := range each {
		served(fmt.Sprintf("/openapi/v3/apis/example.com/v%d", i+1))
	}
	took := (heapInUse() - before) >> 10 / (definitions * each)
	t.Logf("a version of a small CRD takes %d KiB", took)
	if took > 100 {
		t.Errorf("each version of a small CRD takes %d KiB after its document was read", took)
	}
	if code, _ := get("/openapi/v3/apis/example.com/v1", "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"); code != http.StatusRequestEntityTooLarge {
		t.Errorf("a document for which the space's memory is too small gets %d", code)
	}
	if code, to := get("/openapi/v3/apis/example.com/v2?hash=other", "application/json"); code != http.StatusMovedPermanently || !strings.Contains(to, "hash=") {
		t.Errorf("a document that has changed gets %d, %s", code, to)
	} else if code, _ := get(to, "application/json"); code != http.StatusOK {
		t.Errorf("the document at %s gets %d", to, code)
	}
	if code, _ := get("/openapi/v3/apis/example.com/v21", "application/json"); code != http.StatusNotFound {
		t.Errorf("a version that is not there gets %d", code)
	}
	runtime.KeepAlive(p)
}

func heapInUse() int64 {
	runtime.GC()
	runtime.GC() // what pools keep goes with the second
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc) //nolint:gosec // less than the machine's memory
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/openapi"

	"github.com/berth-dev/berth/bounds"
)

// documents has a document for each of some API groups, and counts how often the documents are listed.
type documents struct {
	lists  int
	groups []string
	hash   string // of the documents
	reads  int    // of documents
}

func (d *documents) Paths() (map[string]openapi.GroupVersion, error) {
	d.lists++
	paths := map[string]openapi.GroupVersion{"version": document{}, "apis": document{}}
	for _, group := range d.groups {
		paths["apis/"+group+"/v1"] = document{group, d.hash, &d.reads}
	}
	return paths, nil
}

type document struct {
	group, hash string
	reads       *int
}

func (d document) Schema(string) ([]byte, error) {
	*d.reads++
	if strings.HasPrefix(d.group, "broken") {
		return []byte("{}"), nil
	}
	return fmt.Appendf(nil, `{"components": {"schemas": {"com.example.v1.Thing": {"type": "object",
		"x-kubernetes-group-version-kind": [{"group": %q, "version": "v1", "kind": "Thing"}]}}}}`, d.group), nil
}

func (d document) ServerRelativeURL() string {
	return "/openapi/v3/apis/" + d.group + "/v1?hash=" + d.hash
}

func thing(group string) schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: group, Version: "v1", Kind: "Thing"}
}

// L3, T8: a space lists its OpenAPI documents only when a policy changes an object, and not more often than every few seconds.
// Such a policy has a converter at once, also for a kind that is new, and another one when the document has changed.
func TestOpenAPIDocumentsAreListedWhenAPolicyNeedsThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &documents{groups: []string{"example.com"}, hash: "1"}
		c := newTypeConverters(d, nil)
		c.Run(t.Context())
		<-time.After(time.Hour)
		if d.lists != 0 {
			t.Errorf("without a policy, they are listed %d times", d.lists)
		}
		first := c.GetTypeConverter(thing("example.com"))
		for range 100 {
			if again := c.GetTypeConverter(thing("example.com")); again == nil || again != first {
				t.Fatal("a policy has no converter, or another one each time")
			}
		}
		if d.lists != 1 {
			t.Errorf("for many requests in a moment, they are listed %d times", d.lists)
		}
		d.groups = append(d.groups, "new.example.com")
		<-time.After(newDocumentsAge)
		if c.GetTypeConverter(thing("new.example.com")) == nil {
			t.Error("a new kind has no converter")
		}
		d.hash = "2"
		<-time.After(documentsAge)
		if c.GetTypeConverter(thing("example.com")) == first {
			t.Error("a changed kind has the old converter")
		}
		before := d.lists
		if <-time.After(time.Hour); d.lists != before {
			t.Errorf("after that, they are listed %d times without a request", d.lists-before)
		}
	})
}

// L3: a tenant who creates and deletes definitions doesn't make a space keep what was made for them. What it keeps is accounted,
// and what is used stays.
func TestHostileConvertersOfDeletedKindsAreForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &documents{}
		a := bounds.NewAccount(nil)
		c := newTypeConverters(d, a)
		for i := range 20 {
			d.groups = []string{fmt.Sprintf("a%d.example.com", i), fmt.Sprintf("b%d.example.com", i)}
			<-time.After(documentsAge)
			for _, group := range d.groups {
				if c.GetTypeConverter(thing(group)) == nil {
					t.Fatalf("%s has no converter", group)
				}
			}
			if len(c.made) > len(d.groups) {
				t.Fatalf("it keeps %d converters for %d groups", len(c.made), len(d.groups))
			}
		}
		d.groups = nil
		for i := range 5 * mostConverters {
			d.groups = append(d.groups, fmt.Sprintf("c%d.example.com", i))
		}
		<-time.After(documentsAge)
		used := c.GetTypeConverter(thing(d.groups[0]))
		each := a.Used(bounds.CachedBytes)
		for _, group := range d.groups {
			c.GetTypeConverter(thing(group))
			if c.GetTypeConverter(thing(d.groups[0])) != used {
				t.Fatal("what is used was made again")
			}
			<-time.After(time.Microsecond)
		}
		if len(c.made) != mostConverters {
			t.Errorf("it keeps %d converters, want %d", len(c.made), mostConverters)
		}
		if bytes := a.Used(bounds.CachedBytes); each <= 0 || bytes < each*mostConverters || bytes > 2*each*mostConverters {
			t.Errorf("%d bytes are accounted for %d converters, and %d for one", bytes, mostConverters, each)
		}
		d.groups = nil
		<-time.After(documentsAge)
		if c.GetTypeConverter(thing("c0.example.com")) != nil || a.Used(bounds.CachedBytes) != 0 {
			t.Errorf("without documents, %d bytes are accounted", a.Used(bounds.CachedBytes))
		}
	})
}

// L3: a document that no converter can be made of is read once, and not for each request.
func TestHostileADocumentWithoutAConverterIsReadOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &documents{groups: []string{"broken.example.com"}}
		c := newTypeConverters(d, nil)
		<-time.After(documentsAge)
		for range 10 {
			if c.GetTypeConverter(thing("broken.example.com")) != nil {
				t.Fatal("a converter of nothing")
			}
		}
		if d.reads != 1 {
			t.Errorf("it is read %d times", d.reads)
		}
	})
}

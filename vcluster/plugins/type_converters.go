// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/openapi"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/internal/heapsize"
)

const (
	// documentsAge is how old a list of a space's OpenAPI documents may be, and newDocumentsAge how old it may be for a kind
	// that it doesn't have.
	documentsAge, newDocumentsAge = 5 * time.Second, time.Second
	// mostConverters is how many type converters a space keeps. Others are made again when they are needed.
	mostConverters = 32
	// schemaSize is how many bytes of memory a converter takes for each schema of its document, at most, besides the names of
	// properties: 240 were measured for schemas of nothing but a type, which are the densest.
	schemaSize = 256
)

// typeConverters makes type converters for mutating policies of a space, from the space's OpenAPI documents. Upstream's lists
// the documents every five seconds, which takes a third of the CPU time of an idle space, and keeps a converter for each API
// group that the space has ever had, which is as much memory as a tenant likes. This lists them when a policy changes an object,
// and forgets the converters of groups that are gone. The others are accounted. It is safe for concurrent use.
type typeConverters struct {
	documents openapi.Client
	account   *bounds.Account

	mu     sync.Mutex
	listed time.Time
	paths  map[schema.GroupVersion]openapi.GroupVersion
	made   map[schema.GroupVersion]typeConverter
}

// typeConverter is a converter, or why none can be made, and the URL of its document, which changes with the document.
type typeConverter struct {
	managedfields.TypeConverter
	err  error
	url  string
	size int64 // as it is accounted
	used time.Time
}

func newTypeConverters(documents openapi.Client, account *bounds.Account) *typeConverters {
	return &typeConverters{documents: documents, account: account, made: map[schema.GroupVersion]typeConverter{}}
}

// Run implements [patch.TypeConverterManager]. There is nothing to do.
func (c *typeConverters) Run(context.Context) {}

// GetTypeConverter implements [patch.TypeConverterManager]. It returns nil if the space has no document of the kind's group.
func (c *typeConverters) GetTypeConverter(kind schema.GroupVersionKind) managedfields.TypeConverter {
	c.mu.Lock()
	defer c.mu.Unlock()
	converter, err := c.get(kind.GroupVersion())
	if err != nil {
		utilruntime.HandleError(fmt.Errorf("make a type converter for %s: %w", kind, err))
		return nil
	}
	return converter
}

func (c *typeConverters) get(group schema.GroupVersion) (managedfields.TypeConverter, error) {
	age := documentsAge
	if _, known := c.paths[group]; !known {
		age = newDocumentsAge
	}
	if time.Since(c.listed) >= age {
		if err := c.list(); err != nil {
			return nil, err
		}
	}
	document, known := c.paths[group]
	if !known {
		return nil, fmt.Errorf("there is no OpenAPI document of %s", group)
	}
	made, ok := c.made[group]
	if !ok || made.url != document.ServerRelativeURL() {
		c.forget(group)
		text, err := document.Schema(runtime.ContentTypeJSON)
		if err != nil {
			return nil, err // the next time may succeed
		}
		made = makeTypeConverter(group, text)
		made.url = document.ServerRelativeURL()
		for len(c.made) >= mostConverters {
			c.forgetOldest()
		}
		c.account.Add(bounds.CachedBytes, made.size)
	}
	made.used = time.Now()
	c.made[group] = made
	return made.TypeConverter, made.err
}

func makeTypeConverter(group schema.GroupVersion, document []byte) (made typeConverter) {
	var read spec3.OpenAPI
	if made.err = json.Unmarshal(document, &read); made.err != nil {
		return made
	}
	if read.Components == nil {
		made.err = fmt.Errorf("the OpenAPI document of %s has no schemas", group)
		return made
	}
	if made.TypeConverter, made.err = managedfields.NewTypeConverter(read.Components.Schemas, false); made.err == nil {
		for name, one := range read.Components.Schemas {
			made.size += int64(len(name)) + sizeOfSchema(one)
		}
	}
	return made
}

// sizeOfSchema is about how much a converter takes for a schema with those in it.
func sizeOfSchema(s *spec.Schema) int64 {
	size := int64(schemaSize) + heapsize.Of(s.Default) + heapsize.Of(s.Extensions["x-kubernetes-list-map-keys"])
	for name := range s.Properties {
		property := s.Properties[name]
		size += int64(len(name)) + sizeOfSchema(&property)
	}
	if s.Items != nil && s.Items.Schema != nil {
		size += sizeOfSchema(s.Items.Schema)
	}
	if s.AdditionalProperties != nil && s.AdditionalProperties.Schema != nil {
		size += sizeOfSchema(s.AdditionalProperties.Schema)
	}
	return size
}

func (c *typeConverters) forget(group schema.GroupVersion) {
	c.account.Add(bounds.CachedBytes, -c.made[group].size)
	delete(c.made, group)
}

// forgetOldest forgets the converter that has not been used for longest.
func (c *typeConverters) forgetOldest() {
	c.forget(slices.MinFunc(slices.Collect(maps.Keys(c.made)), func(a, b schema.GroupVersion) int {
		return c.made[a].used.Compare(c.made[b].used)
	}))
}

// list lists the documents, and forgets the converters of those that are gone or have changed.
func (c *typeConverters) list() error {
	documents, err := c.documents.Paths()
	if err != nil {
		return err
	}
	paths := make(map[schema.GroupVersion]openapi.GroupVersion, len(documents))
	for path, document := range documents {
		name, found := strings.CutPrefix(path, "apis/")
		if !found {
			name, found = strings.CutPrefix(path, "api/")
		}
		if group, err := schema.ParseGroupVersion(name); found && err == nil {
			paths[group] = document
		}
	}
	c.paths, c.listed = paths, time.Now()
	for group, made := range c.made {
		if document, known := paths[group]; !known || document.ServerRelativeURL() != made.url {
			c.forget(group)
		}
	}
	return nil
}

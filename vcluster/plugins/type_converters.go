// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/openapi"
	"k8s.io/kube-openapi/pkg/spec3"
)

const (
	// documentsAge is how old a list of a space's OpenAPI documents may be, and newDocumentsAge how old it may be for a kind
	// that it doesn't have.
	documentsAge, newDocumentsAge = 5 * time.Second, time.Second
	// mostConverters is how many type converters a space keeps. Others are made again when they are needed.
	mostConverters = 32
)

// typeConverters makes type converters for mutating policies of a space, from the space's OpenAPI documents. Upstream's lists
// the documents every five seconds, which takes a third of the CPU time of an idle space, and keeps a converter for each API
// group that the space has ever had, which is as much memory as a tenant likes. This lists them when a policy changes an object,
// and forgets the converters of groups that are gone. It is safe for concurrent use.
type typeConverters struct {
	documents openapi.Client

	mu     sync.Mutex
	listed time.Time
	paths  map[schema.GroupVersion]openapi.GroupVersion
	made   map[schema.GroupVersion]typeConverter
}

// typeConverter is a converter, and the URL of its document, which changes with the document.
type typeConverter struct {
	managedfields.TypeConverter
	url string
}

func newTypeConverters(documents openapi.Client) *typeConverters {
	return &typeConverters{documents: documents, made: map[schema.GroupVersion]typeConverter{}}
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
	if made, ok := c.made[group]; ok {
		return made, nil
	}
	text, err := document.Schema(runtime.ContentTypeJSON)
	if err != nil {
		return nil, err
	}
	var read spec3.OpenAPI
	if err := json.Unmarshal(text, &read); err != nil {
		return nil, err
	}
	if read.Components == nil {
		return nil, fmt.Errorf("the OpenAPI document of %s has no schemas", group)
	}
	converter, err := managedfields.NewTypeConverter(read.Components.Schemas, false)
	if err != nil {
		return nil, err
	}
	for other := range c.made { // any
		if len(c.made) < mostConverters {
			break
		}
		delete(c.made, other)
	}
	made := typeConverter{converter, document.ServerRelativeURL()}
	c.made[group] = made
	return made, nil
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
	maps.DeleteFunc(c.made, func(group schema.GroupVersion, made typeConverter) bool {
		document, known := paths[group]
		return !known || document.ServerRelativeURL() != made.url
	})
	return nil
}

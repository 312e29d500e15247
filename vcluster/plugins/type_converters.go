// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/admission/plugin/policy/mutating/patch"
	"k8s.io/client-go/openapi"
)

// typeConverters has upstream's manager list the OpenAPI documents of a space only once a mutating policy has changed an
// object. Upstream's lists them every five seconds from the start, which takes a third of the CPU time of an idle space.
// It is safe for concurrent use.
type typeConverters struct {
	upstream patch.TypeConverterManager
	first    sync.Once
	needed   chan struct{} // is closed by the first use
	listed   chan struct{} // is closed by the first list
	ended    chan struct{} // is closed when Run returns
}

func newTypeConverters(documents openapi.Client) *typeConverters {
	c := &typeConverters{needed: make(chan struct{}), listed: make(chan struct{}), ended: make(chan struct{})}
	c.upstream = patch.NewTypeConverterManager(nil, &observedDocuments{Client: documents, listed: c.listed})
	return c
}

// observedDocuments closes a channel once its documents have been listed.
type observedDocuments struct {
	openapi.Client
	listed chan struct{}
	first  sync.Once
}

// Paths implements [openapi.Client].
func (d *observedDocuments) Paths() (map[string]openapi.GroupVersion, error) {
	paths, err := d.Client.Paths()
	if err == nil {
		d.first.Do(func() { close(d.listed) })
	}
	return paths, err
}

// Run implements [patch.TypeConverterManager].
func (c *typeConverters) Run(ctx context.Context) {
	defer close(c.ended)
	select {
	case <-c.needed:
		c.upstream.Run(ctx)
	case <-ctx.Done():
	}
}

const (
	// firstListTimeout limits the wait until the documents are listed for the first time.
	firstListTimeout = 5 * time.Second
	// takeUpPoll and takeUpTimeout are for the moment in which upstream's manager takes up what it has listed. A kind that
	// has no document waits for as long, once.
	takeUpPoll, takeUpTimeout = 5 * time.Millisecond, 100 * time.Millisecond
)

// GetTypeConverter implements [patch.TypeConverterManager]. The first call waits until the documents are listed.
func (c *typeConverters) GetTypeConverter(kind schema.GroupVersionKind) managedfields.TypeConverter {
	c.first.Do(func() {
		close(c.needed)
		select {
		case <-c.listed:
		case <-c.ended:
			return
		case <-time.After(firstListTimeout):
			return
		}
		_ = wait.PollUntilContextTimeout(context.Background(), takeUpPoll, takeUpTimeout, true, func(context.Context) (takenUp bool, _ error) {
			return c.upstream.GetTypeConverter(kind) != nil, nil
		})
	})
	return c.upstream.GetTypeConverter(kind)
}

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
	needed   chan struct{} // is closed by the first use
	first    sync.Once
}

func newTypeConverters(documents openapi.Client) *typeConverters {
	return &typeConverters{upstream: patch.NewTypeConverterManager(nil, documents), needed: make(chan struct{})}
}

// Run implements [patch.TypeConverterManager].
func (c *typeConverters) Run(ctx context.Context) {
	select {
	case <-c.needed:
		c.upstream.Run(ctx)
	case <-ctx.Done():
	}
}

// firstListPoll and firstListTimeout are for the wait until upstream's manager has listed the documents for the first time.
const (
	firstListPoll    = 25 * time.Millisecond
	firstListTimeout = 5 * time.Second
)

// GetTypeConverter implements [patch.TypeConverterManager]. The first call waits until the documents are listed.
func (c *typeConverters) GetTypeConverter(kind schema.GroupVersionKind) managedfields.TypeConverter {
	c.first.Do(func() {
		close(c.needed)
		_ = wait.PollUntilContextTimeout(context.Background(), firstListPoll, firstListTimeout, false, func(context.Context) (listed bool, _ error) {
			return c.upstream.GetTypeConverter(kind) != nil, nil
		})
	})
	return c.upstream.GetTypeConverter(kind)
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package plugins

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/openapi"
)

// documents has one document, and counts how often the documents are listed.
type documents struct{ lists atomic.Int64 }

func (d *documents) Paths() (map[string]openapi.GroupVersion, error) {
	d.lists.Add(1)
	return map[string]openapi.GroupVersion{"apis/example.com/v1": document{}}, nil
}

type document struct{}

func (document) Schema(string) ([]byte, error) {
	return []byte(`{"components": {"schemas": {"com.example.v1.Thing": {"type": "object",
		"x-kubernetes-group-version-kind": [{"group": "example.com", "version": "v1", "kind": "Thing"}]}}}}`), nil
}
func (document) ServerRelativeURL() string { return "/openapi/v3/apis/example.com/v1?hash=1" }

// L3, T8: a space without mutating policies doesn't list its OpenAPI documents. The first policy that changes an object has
// a converter at once, and the documents are listed from then on, as they may change.
func TestOpenAPIDocumentsAreListedOnceAPolicyNeedsThem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		listed := &documents{}
		c := newTypeConverters(listed)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan struct{})
		go func() {
			defer close(ended)
			c.Run(ctx)
		}()
		<-time.After(time.Hour)
		if n := listed.lists.Load(); n != 0 {
			t.Errorf("without a policy, they are listed %d times in an hour", n)
		}
		thing := schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}
		for _, use := range []string{"first", "second"} {
			if c.GetTypeConverter(thing) == nil {
				t.Errorf("the %s policy has no converter", use)
			}
		}
		before := listed.lists.Load()
		<-time.After(time.Minute)
		if n := listed.lists.Load() - before; n < 10 || n > 15 {
			t.Errorf("once a policy needs them, they are listed %d times in a minute", n)
		}
		stop()
		<-ended
	})
}

// T8: a space that stops before it has such a policy waits for nothing, and neither does a request that comes after that.
func TestAStopEndsTheWaitForAPolicy(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	c := newTypeConverters(&documents{})
	c.Run(ctx)
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		if c.GetTypeConverter(schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Thing"}) != nil {
			t.Error("a space that has ended has a converter")
		}
	}()
	select {
	case <-answered:
	case <-time.After(firstListTimeout / 2):
		t.Error("a request waits for a space that has ended")
	}
}

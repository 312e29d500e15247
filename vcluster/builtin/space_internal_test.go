// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"context"
	"errors"
	"net/http"
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/apiserver/pkg/storage"
	api "k8s.io/kubernetes/pkg/apis/core"
)

// T2: what has lost the space it is for must not reach any.
func TestNothingIsServedWithoutASpace(t *testing.T) {
	ctx := context.Background()
	d := &dispatcher{}
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://space.invalid/", http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	attributes := admission.NewAttributesRecord(nil, nil, schema.GroupVersionKind{}, "", "", schema.GroupVersionResource{}, "",
		admission.Create, nil, false, nil)
	for what, err := range map[string]error{
		"get":       d.Get(ctx, "/a", storage.GetOptions{}, &api.Pod{}),
		"list":      d.GetList(ctx, "/a", storage.ListOptions{}, &api.PodList{}),
		"create":    d.Create(ctx, "/a", &api.Pod{}, nil, 0),
		"delete":    d.Delete(ctx, "/a", &api.Pod{}, nil, nil, nil, storage.DeleteOptions{}),
		"update":    d.GuaranteedUpdate(ctx, "/a", &api.Pod{}, false, nil, nil, nil),
		"watch":     second(d.Watch(ctx, "/a", storage.ListOptions{})),
		"stats":     second(d.Stats(ctx)),
		"progress":  d.RequestWatchProgress(ctx),
		"revision":  second(d.GetCurrentResourceVersion(ctx)),
		"admit":     access{}.Admit(ctx, attributes, nil),
		"validate":  access{}.Validate(ctx, attributes, nil),
		"authorize": third(access{}.Authorize(ctx, authorizer.AttributesRecord{})),
		"own":       second(ownOf[rest.Getter](ctx, owner{})),
	} {
		if err == nil {
			t.Errorf("%s: no error", what)
		}
	}
	if decision, _, _ := (access{}).Authorize(ctx, authorizer.AttributesRecord{}); decision != authorizer.DecisionDeny {
		t.Errorf("decision %v, want to deny", decision)
	}
	if _, _, incomplete, err := (access{}).RulesFor(ctx, nil, ""); err == nil || !incomplete {
		t.Errorf("rules: incomplete %v, %v", incomplete, err)
	}
	if _, ok, err := (access{}).AuthenticateRequest(request); ok || err == nil {
		t.Errorf("authenticate: %v, %v", ok, err)
	}
	resp, err := access{}.RoundTrip(request)
	if !errors.Is(err, errNoSpace) {
		t.Errorf("call: %v", err)
	}
	if resp != nil {
		_ = resp.Body.Close()
	}
}

// A nil space, or one that a request brought from elsewhere, must not do either.
func TestTheInnermostSpaceCounts(t *testing.T) {
	outer, inner := &Space{}, &Space{}
	ctx := WithSpace(WithSpace(context.Background(), outer), inner)
	if s, err := spaceOf(ctx); err != nil || s != inner {
		t.Errorf("got %p, %v, want %p", s, err, inner)
	}
	if s, err := spaceOf(WithSpace(ctx, nil)); err == nil {
		t.Errorf("no space became %p", s)
	}
}

func second[T any](_ T, err error) error { return err }

func third[T, U any](_ T, _ U, err error) error { return err }

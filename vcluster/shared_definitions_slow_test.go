// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"bytes"
	"io"
	"net/http"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/definitions"
)

// TestHostileARequestOfAnEarlierDefinitionIsRefused sends the rest of a request's body when another definition is in force. The API
// server validates it by the one that there was when the request began (C5).
func TestHostileARequestOfAnEarlierDefinitionIsRefused(t *testing.T) {
	t.Parallel()
	optional := &definitions.Shared{CRD: shared(t, hostWidgets()), InRange: true}
	c := config(t, "slow")
	c.Definitions = &definitions.Source{}
	space := start(t, c)
	tenant := newTenantOf(t, space)
	tenant.define(t, localWidgets())
	tenant.waitForSize(t, false)

	client, err := rest.HTTPClientFor(space.Loopback())
	if err != nil {
		t.Fatal(err)
	}
	body := encoded(t, widget("late", map[string]any{"color": "red", "size": int64(5)}))
	reader, writer := io.Pipe()
	url := space.Loopback().Host + "/apis/example.com/v1/namespaces/default/widgets"
	request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, reader)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Content-Type", "application/json")
	type answer struct {
		code int
		body string
		err  error
	}
	answered := make(chan answer, 1)
	go func() {
		response, err := client.Do(request)
		if err != nil {
			answered <- answer{err: err}
			return
		}
		defer response.Body.Close()
		var text bytes.Buffer
		_, err = text.ReadFrom(response.Body)
		answered <- answer{response.StatusCode, text.String(), err}
	}()
	if _, err := writer.Write(body[:1]); err != nil { // returns when the server reads
		t.Fatal(err)
	}

	c.Definitions.Set(definitions.NewSet(definitions.SystemCRDFirst, optional))
	tenant.waitForSize(t, true)
	if _, err := writer.Write(body[1:]); err != nil {
		t.Fatal(err)
	}
	if err := writer.Close(); err != nil {
		t.Fatal(err)
	}
	if got := <-answered; got.err != nil || got.code != http.StatusTooManyRequests {
		t.Errorf("the answer is %d %s, %v; want that the client tries again", got.code, got.body, got.err)
	}
	for _, policy := range []definitions.Policy{definitions.SystemCRDFirst, definitions.LocalCRDFirst} {
		c.Definitions.Set(definitions.NewSet(policy, optional))
		tenant.waitForSize(t, policy == definitions.SystemCRDFirst)
		if _, err := tenant.widgets.Get(t.Context(), "late", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("with the policy %s: get the object of the refused request: %v, want that it isn't found", policy, err)
		}
	}
}

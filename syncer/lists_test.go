// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/syncer"
)

// B7: an account that may not list what Berth watches is an error that says so, not a start that never ends.
func TestAStartFailsWithoutTheRightToList(t *testing.T) {
	t.Parallel()
	w := &wire{}
	w.obey(func(c call, send func() (*http.Response, error)) (*http.Response, error) {
		if strings.HasSuffix(c.URL.Path, "/configmaps") {
			return answer(http.StatusForbidden, metav1.StatusReasonForbidden)(c)
		}
		return send()
	})
	host, err := syncer.NewHost(w.config(toHost, theHost(t).Config()), syncer.Options{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testhost.Timeout)
	defer cancel()
	err = host.Start(ctx)
	if err == nil {
		host.Stop()
		t.Fatal("it started")
	}
	for _, word := range []string{"configmaps", "list", "out of order"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("the error %q does not say %q", err, word)
		}
	}
	if ctx.Err() != nil {
		t.Error("it waited until its context ended")
	}
}

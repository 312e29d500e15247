// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostapi_test

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/client/hostapi"
)

// X3: an error says what to do if there is something, and otherwise is as the host sent it.
func TestErrorsSayWhatToDo(t *testing.T) {
	const server = "https://host.example"
	tenants := v1alpha1.Resource("tenants")
	refused := &url.Error{Op: "Get", URL: server + "/apis", Err: &net.OpError{Op: "dial", Err: errors.New("connection refused")}}
	for name, tc := range map[string]struct {
		err  error
		adds string // empty for an error that stays as it is
	}{
		"rights": {apierrors.NewForbidden(tenants, "", errors.New(`User "jane" cannot list resource "tenants" in API group "berth.dev" at the cluster scope`)),
			"ask an admin of the host for this right, for example by a ClusterRole with tenants.berth.dev and the verb list"},
		"a policy":         {apierrors.NewForbidden(tenants, "acme", errors.New("a tenant with children cannot be deleted; delete the resource below first")), ""},
		"credentials":      {apierrors.NewUnauthorized("Unauthorized"), "the host https://host.example rejects the credentials of your kubeconfig"},
		"no such object":   {apierrors.NewNotFound(tenants, "acme"), ""},
		"wrapped":          {fmt.Errorf("find: %w", apierrors.NewNotFound(tenants, "acme")), ""},
		"nobody listens":   {refused, "start the host cluster, or choose another one with --kubeconfig or --context"},
		"another server":   {&url.Error{Op: "Get", URL: "https://space.example/api", Err: refused.Err}, ""},
		"no configuration": {clientcmd.ErrEmptyConfig, "no host cluster is set"},
		"anything else":    {errors.New("else"), ""},
	} {
		got := hostapi.Explain(tc.err, server)
		if tc.adds == "" && got.Error() != tc.err.Error() || tc.adds != "" && !strings.Contains(got.Error(), tc.adds) {
			t.Errorf("%s: got %v", name, got)
		}
	}
	if got := hostapi.Explain(nil, server); got != nil {
		t.Errorf("nothing is %v", got)
	}
}

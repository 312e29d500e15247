// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// N1, M1.
func TestASpaceHasNoNodes(t *testing.T) {
	t.Parallel()
	demo := sharedBerth(t).demo(t)
	if out := demo.kubectl(t, "get", "nodes"); !strings.Contains(out, "No resources found") {
		t.Errorf("kubectl get nodes shows:\n%s", out)
	}
	out, err := demo.tryKubectl(t, "", "top", "nodes")
	if err == nil {
		t.Errorf("kubectl top nodes shows:\n%s", out)
	}
}

// refused checks that err forbids something, in words that say what.
func refused(t *testing.T, what string, err error, says string) {
	t.Helper()
	switch {
	case err == nil:
		t.Errorf("%s is allowed", what)
	case !apierrors.IsForbidden(err) && !apierrors.IsInvalid(err):
		t.Errorf("%s fails with %v, want it forbidden", what, err)
	case !strings.Contains(err.Error(), says):
		t.Errorf("%s is refused with %q, want it to name %q", what, err, says)
	}
}

// unserved checks that err is for a resource that no space serves (U6), in words that say why.
func unserved(t *testing.T, what string, err error, resource string) {
	t.Helper()
	if !apierrors.IsNotFound(err) || !strings.Contains(err.Error(), "a space does not serve "+resource+": ") {
		t.Errorf("%s fails with %v, want it not served", what, err)
	}
}

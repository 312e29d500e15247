// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// realCluster returns the cluster with real containers that the environment names, as
// `make e2e` makes one, Helm's too, and the values of the given variables, which
// name images. Where one of them is not set, the test is skipped.
func realCluster(t *testing.T, variables ...string) (host *cluster, images []string) {
	t.Helper()
	kubeconfig := os.Getenv(envKubeconfig)
	for _, variable := range variables {
		images = append(images, os.Getenv(variable))
	}
	if kubeconfig == "" || slices.Contains(images, "") {
		t.Skipf("needs a cluster with real containers, as `make e2e` makes one: %s and %s", envKubeconfig, strings.Join(variables, ", "))
	}
	t.Setenv("KUBECONFIG", kubeconfig) // Helm's
	return newCluster(t, kubeconfig), images
}

// ofImage is how the chart's values name an image of Berth.
func ofImage(image string) string {
	colon := strings.LastIndex(image, ":")
	return "image.repository=" + image[:colon] + ",image.tag=" + image[colon+1:]
}

// ownRelease has a release of the chart, named berth in a namespace of the given
// name, be the test's own: what an earlier run left of it and of its spaces goes
// first, and what this one leaves goes at its end. The definition of spaces stays: releases are installed with
// --take-ownership, as it may be that of one in another namespace.
func ownRelease(t *testing.T, host *cluster, namespace string, spaces ...string) {
	t.Helper()
	namespaces := []string{namespace}
	for _, space := range spaces {
		namespaces = append(namespaces, "berth-"+space)
	}
	removeRelease(t.Context(), t, host, namespaces)
	for _, name := range namespaces {
		awaitGone(t, "an earlier test's namespace", host.CoreV1().Namespaces().Get, name)
	}
	t.Cleanup(func() {
		ctx := context.WithoutCancel(t.Context())
		record(ctx, t, host, namespaces...)
		removeRelease(ctx, t, host, namespaces)
	})
}

// removeRelease removes all that docs/guides/install.md says is left by an uninstall,
// too. The release is in the first namespace.
func removeRelease(ctx context.Context, t *testing.T, host *cluster, namespaces []string) {
	t.Helper()
	if _, err := tryHelm(ctx, "uninstall", "berth", "--namespace", namespaces[0], "--ignore-not-found", "--wait"); err != nil {
		t.Errorf("helm uninstall: %v", err)
	}
	if err := suite().build(); err != nil {
		t.Fatal(err)
	}
	for _, name := range namespaces[1:] { // Berth's finalizer keeps them; where the definition is not installed yet, there are none
		space := "space/" + strings.TrimPrefix(name, "berth-")
		_, _ = host.runKubectl(ctx, "", "patch", space, "--type", "merge", "--patch", `{"metadata":{"finalizers":null}}`)
		_, _ = host.runKubectl(ctx, "", "delete", space, "--ignore-not-found", "--wait=false")
	}
	for _, name := range namespaces {
		if err := host.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			t.Errorf("remove namespace %s: %v", name, err)
		}
	}
}

// helm runs the Helm that hack/helm pins, and returns what it printed.
func helm(t *testing.T, args ...string) string {
	t.Helper()
	out, err := tryHelm(t.Context(), args...)
	if err != nil {
		t.Fatalf("helm %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return out
}

func tryHelm(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"tool", "-modfile=../hack/helm/go.mod", "helm"}, args)...)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return stdout.String(), fmt.Errorf("%w: %s", err, stderr.String())
	}
	return stdout.String(), nil
}

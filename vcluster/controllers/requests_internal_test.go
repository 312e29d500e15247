// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/loopback"
	"github.com/berth-dev/berth/vcluster/roundtrip"
)

// L3: a policy that changed the ConfigMap of a namespace that holds the CA, each time that its controller wrote it, had that written 250
// times a second without an end.
func TestHostileLoopsOfControllersHaveARate(t *testing.T) {
	answers := roundtrip.Func(func(*http.Request) (*http.Response, error) {
		return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: io.NopCloser(strings.NewReader("{}"))}, nil
	})
	client, err := kubernetes.NewForConfig(limitRequests(loopback.Config(answers, ""), bounds.NewAccount(nil)))
	if err != nil {
		t.Fatal(err)
	}
	for range 100 * controllerRate {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond) // less than a turn takes to come
		_, err := client.CoreV1().ConfigMaps("default").Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
		cancel()
		if err != nil && strings.Contains(err.Error(), "rate") {
			return
		}
	}
	t.Error("a controller may send as many requests as it likes")
}

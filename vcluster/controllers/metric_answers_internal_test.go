// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/berth-dev/berth/vcluster/roundtrip"
)

// L3: the autoscaler, which runs with the space's API server, decodes what a tenant's server of metrics answers.
func TestHostileMetricsAreNotDecoded(t *testing.T) {
	read := func(path, document string) error {
		client := checkMetrics(roundtrip.Func(func(*http.Request) (*http.Response, error) {
			return &http.Response{Body: io.NopCloser(strings.NewReader(document))}, nil
		}))
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://space"+path, http.NoBody)
		if err != nil {
			t.Fatal(err)
		}
		resp, err := client.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		_, err = io.ReadAll(resp.Body)
		return err
	}
	for path, document := range map[string]string{
		"/apis/external.metrics.k8s.io/v1beta1/namespaces/default/queue":          `{"items":[{"value":"1e-5000000"}]}`,
		"/apis/custom.metrics.k8s.io/v1beta2/namespaces/default/pods/*/queue":     `{"items":[{"value":"1e-5000000"}]}`,
		"/apis/metrics.k8s.io/v1beta1/namespaces/default/pods":                    `{"items":[{"containers":[{"usage":{"cpu":"1e-5000000"}}]}]}`,
		"/apis/custom.metrics.k8s.io/v1beta1/namespaces/default/services/a/queue": `"` + strings.Repeat(" ", maxMetrics) + `"`,
	} {
		if err := read(path, document); err == nil {
			t.Errorf("%s is read", path)
		}
		if err := read(path, strings.ReplaceAll(document[:min(len(document), 1000)], "1e-5000000", "12m")); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
	if err := read("/api/v1/namespaces/default/pods", `{"items":[{"value":"1e-5000000"}]}`); err != nil {
		t.Error(err)
	}
}

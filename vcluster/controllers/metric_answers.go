// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"reflect"
	"strings"

	custommetricsv1beta1 "k8s.io/metrics/pkg/apis/custom_metrics/v1beta1"
	custommetricsv1beta2 "k8s.io/metrics/pkg/apis/custom_metrics/v1beta2"
	externalmetricsv1beta1 "k8s.io/metrics/pkg/apis/external_metrics/v1beta1"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"

	"github.com/berth-dev/berth/vcluster/quantities"
	"github.com/berth-dev/berth/vcluster/roundtrip"
)

const (
	// metricsGroups ends the names of the API groups of metrics: as they are, of custom metrics, and of external metrics.
	metricsGroups = "metrics.k8s.io"
	// maxMetrics is how many bytes the metrics may be that a controller reads at once.
	maxMetrics = 4 << 20
)

// checkMetrics has the autoscaler's client fail to read metrics of which it can't decode the quantities in time. They come from whatever
// serves these groups, such as a tenant's own server or custom resources. It is for no client that watches: an answer is read whole.
func checkMetrics(next http.RoundTripper) http.RoundTripper {
	return roundtrip.Func(func(r *http.Request) (*http.Response, error) {
		resp, err := next.RoundTrip(r)
		group, _, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/apis/"), "/")
		if err == nil && strings.HasPrefix(r.URL.Path, "/apis/") && strings.HasSuffix(group, metricsGroups) {
			resp.Body = &metricsBody{ReadCloser: resp.Body}
		}
		return resp, err
	})
}

// metricsBody reads all, and checks it, before it is read itself.
type metricsBody struct {
	io.ReadCloser
	checked io.Reader
}

func (b *metricsBody) Read(p []byte) (int, error) {
	if b.checked == nil {
		document, err := io.ReadAll(io.LimitReader(b.ReadCloser, maxMetrics+1))
		if err != nil {
			return 0, err
		}
		if len(document) > maxMetrics {
			return 0, fmt.Errorf("the metrics are longer than %d bytes", maxMetrics)
		}
		for _, t := range []reflect.Type{
			reflect.TypeFor[metricsv1beta1.PodMetricsList](), reflect.TypeFor[metricsv1beta1.NodeMetricsList](),
			reflect.TypeFor[metricsv1beta1.PodMetrics](), reflect.TypeFor[metricsv1beta1.NodeMetrics](),
			reflect.TypeFor[custommetricsv1beta1.MetricValueList](), reflect.TypeFor[custommetricsv1beta2.MetricValueList](),
			reflect.TypeFor[externalmetricsv1beta1.ExternalMetricValueList](),
		} {
			if err := quantities.CheckDocument(document, t); err != nil {
				return 0, fmt.Errorf("metrics: %w", err)
			}
		}
		b.checked = bytes.NewReader(document)
	}
	return b.checked.Read(p)
}

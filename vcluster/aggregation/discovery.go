// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package aggregation

import (
	"context"
	"net/http"

	apidiscoveryv2 "k8s.io/api/apidiscovery/v2"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/endpoints/discovery/aggregated"
	"k8s.io/apiserver/pkg/endpoints/request"
)

// describe answers upstream's discovery manager, which reads answers whole.
func (s *server) describe(w http.ResponseWriter, r *http.Request) {
	by, ok := request.UserFrom(r.Context())
	if !ok {
		http.Error(w, "missing user", http.StatusInternalServerError)
		return
	}
	// The manager bounds one of its two questions only, and asks all servers by two workers.
	ctx, cancel := context.WithTimeout(r.Context(), discoveryTimeout)
	defer cancel()
	resp, err := s.get(ctx, by, r.URL.Path, r.Header)
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != http.StatusOK {
		// The manager asks for less, or gives up; it has no use for the text.
		w.WriteHeader(resp.StatusCode)
		return
	}
	document, err := readJSON(resp.Body, maxDocument, maxTokens)
	if err != nil {
		http.Error(w, err.Error(), http.StatusNotAcceptable)
		return
	}
	for _, name := range []string{"Content-Type", "Etag"} {
		w.Header()[name] = resp.Header[name]
	}
	_, _ = w.Write(document)
}

// ExceptAggregated is a space's discovery as upstream's aggregator is to see it:
// what that one says of the API services that pods serve is dropped, as it can't
// reach them.
func ExceptAggregated(m aggregated.ResourceManager) aggregated.ResourceManager {
	return exceptAggregated{m}
}

type exceptAggregated struct{ aggregated.ResourceManager }

func (e exceptAggregated) WithSource(source aggregated.Source) aggregated.ResourceManager {
	if source == aggregated.AggregatorSource {
		return dropped(e)
	}
	return e.ResourceManager.WithSource(source)
}

type dropped struct{ aggregated.ResourceManager }

func (dropped) AddGroupVersion(string, apidiscoveryv2.APIVersionDiscovery) {}
func (dropped) SetGroupVersionPriority(metav1.GroupVersion, int, int)      {}
func (dropped) RemoveGroupVersion(metav1.GroupVersion)                     {}

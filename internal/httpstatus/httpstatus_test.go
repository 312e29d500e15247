// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package httpstatus_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/internal/httpstatus"
)

// U4: clients show why they are refused, whether they read an object or the discovery of the API, which kubectl does first.
func TestClientsShowWhyTheyAreForbidden(t *testing.T) {
	const why = "the space \"solar\" is not yours\nask its admin"
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { httpstatus.Forbidden(w, r, why) }))
	defer server.Close()
	config := &rest.Config{Host: server.URL, APIPath: "/api", ContentConfig: rest.ContentConfig{GroupVersion: &corev1.SchemeGroupVersion, NegotiatedSerializer: scheme.Codecs}}
	client, err := rest.RESTClientFor(config)
	if err != nil {
		t.Fatal(err)
	}
	for what, err := range map[string]error{
		"an object": client.Get().Resource("pods").Namespace("default").Name("a").Do(t.Context()).Error(),
		"the discovery": func() error {
			_, err := discovery.NewDiscoveryClient(client).ServerGroups()
			return err
		}(),
	} {
		if !apierrors.IsForbidden(err) || err.Error() != why {
			t.Errorf("the client reads %s: %v, want %s", what, err, why)
		}
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostapi

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// FieldManager is the name by which the host remembers which fields the commands have set.
const FieldManager = "berth-cli"

// Client reaches the API of a host.
type Client struct {
	client.Client
	// Config of the connection.
	Config *rest.Config
	// Berth sends requests to the API group of Berth. The answers are JSON.
	Berth rest.Interface
}

// New returns a client of the host that config reaches. It sends no request.
func New(config *rest.Config) (*Client, error) {
	config = rest.CopyConfig(config)
	if config.QPS == 0 {
		config.QPS = -1 // the client's rate limiter reports a deadline first and hides the real cause
	}
	known := runtime.NewScheme()
	if err := v1alpha1.AddToScheme(known); err != nil {
		return nil, err
	}
	if err := corev1.AddToScheme(known); err != nil {
		return nil, err
	}
	if err := apiextensionsv1.AddToScheme(known); err != nil {
		return nil, err
	}
	plain := rest.CopyConfig(config)
	plain.ContentConfig = rest.ContentConfig{} // custom resources have no protobuf
	api, err := client.New(plain, client.Options{Scheme: known, Mapper: mapper()})
	if err != nil {
		return nil, fmt.Errorf("connect to the host: %w", err)
	}
	c := &Client{Client: client.WithFieldOwner(api, FieldManager), Config: config}
	c.Berth, err = c.Group(v1alpha1.GroupVersion)
	return c, err
}

// Group returns what sends requests to an API group. The answers are JSON.
func (c *Client) Group(of schema.GroupVersion) (rest.Interface, error) {
	config := rest.CopyConfig(c.Config)
	config.ContentConfig = rest.ContentConfig{GroupVersion: &of, NegotiatedSerializer: serializer.NewCodecFactory(scheme.Scheme).WithoutConversion()}
	config.APIPath = "/apis"
	api, err := rest.RESTClientFor(config)
	if err != nil {
		return nil, fmt.Errorf("connect to %s: %w", config.Host, err)
	}
	return api, nil
}

// WithTimeout returns a client whose requests end after some time.
func (c *Client) WithTimeout(timeout time.Duration) (*Client, error) {
	config := rest.CopyConfig(c.Config)
	config.Timeout = timeout
	return New(config)
}

// mapper knows the resources that the commands use, so that they need no discovery. It would cost requests, and it would
// hide which resource is missing.
func mapper() meta.RESTMapper {
	m := meta.NewDefaultRESTMapper([]schema.GroupVersion{v1alpha1.GroupVersion, corev1.SchemeGroupVersion, apiextensionsv1.SchemeGroupVersion})
	for _, kind := range []string{"Tenant", "TenantOwner", "Space", "Publication", "BerthConfiguration", "ResourceSync"} {
		m.Add(v1alpha1.GroupVersion.WithKind(kind), meta.RESTScopeRoot)
	}
	m.Add(v1alpha1.GroupVersion.WithKind("Shard"), meta.RESTScopeNamespace)
	m.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), meta.RESTScopeRoot)
	m.Add(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"), meta.RESTScopeRoot)
	for _, kind := range []string{"Secret", "Service", "Pod", "Event"} {
		m.Add(corev1.SchemeGroupVersion.WithKind(kind), meta.RESTScopeNamespace)
	}
	return m
}

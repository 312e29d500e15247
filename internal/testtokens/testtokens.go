// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package testtokens issues tokens of service accounts in tests in which hours pass.
package testtokens

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
)

// Issuer issues tokens by a clock, in place of the host.
type Issuer struct {
	Clock *clocktesting.FakeClock
	// Down has the host be out of reach.
	Down   bool
	issued int
}

// New returns an issuer that has issued none. The first is named token-1.
func New() *Issuer {
	return &Issuer{Clock: clocktesting.NewFakeClock(time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC))}
}

// Client returns a client that does nothing but request tokens.
func (i *Issuer) Client(t *testing.T) client.Client {
	t.Helper()
	create := func(_ context.Context, _ client.Client, _ string, _, request client.Object, _ ...client.SubResourceCreateOption) error {
		if i.Down {
			return errors.New("the host is out of reach")
		}
		i.issued++
		r := request.(*authenticationv1.TokenRequest)
		r.Status.Token = fmt.Sprintf("token-%d", i.issued)
		r.Status.ExpirationTimestamp = metav1.NewTime(i.Clock.Now().Add(time.Duration(*r.Spec.ExpirationSeconds) * time.Second))
		return nil
	}
	host, err := client.NewWithWatch(&rest.Config{}, client.Options{Scheme: scheme.Scheme, Mapper: meta.NewDefaultRESTMapper(nil)})
	if err != nil {
		t.Fatal(err)
	}
	return interceptor.NewClient(host, interceptor.Funcs{SubResourceCreate: create})
}

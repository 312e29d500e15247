// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/operator"
)

// Of two operators, one works. When it ends, the other goes on.
func TestOneOperatorWorksAtATime(t *testing.T) {
	e := newEnv(t)
	elected := func(c *operator.Config) { c.LeaderElection = true }
	leases := testhost.Clientset(t, e.host.Config()).CoordinationV1().Leases(operator.DefaultLeaseNamespace)
	holder := func(not string) (lease *coordinationv1.Lease) {
		t.Helper()
		e.eventually("somebody holds the Lease", func(ctx context.Context) (err error) {
			lease, err = leases.Get(ctx, "berth-operator", metav1.GetOptions{})
			if err == nil && (lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == "" || *lease.Spec.HolderIdentity == not) {
				err = fmt.Errorf("it is %+v", lease.Spec)
			}
			return err
		})
		return lease
	}
	stop := e.run(elected)
	first := *holder("").Spec.HolderIdentity
	e.run(elected)
	e.create(tenant("solar"))
	e.reason("solar", v1alpha1.ReasonSpacesNotReady)
	if now := *holder("").Spec.HolderIdentity; now != first {
		t.Errorf("%s works, and %s did", now, first)
	}
	if err := stop(); err != nil {
		t.Fatal(err)
	}
	holder(first)
	e.create(tenant("lunar"))
	e.reason("lunar", v1alpha1.ReasonSpacesNotReady)
}

// X4: the operator shows its health and metrics.
func TestAnOperatorShowsItsHealth(t *testing.T) {
	e := newEnv(t)
	listener, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	if err := listener.Close(); err != nil {
		t.Fatal(err)
	}
	e.run(func(c *operator.Config) { c.MetricsListen = address })
	for _, path := range []string{"/livez", "/readyz", "/metrics"} {
		e.eventually(path, func(ctx context.Context) error {
			request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
			if err != nil {
				return err
			}
			response, err := http.DefaultClient.Do(request)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			if response.StatusCode != http.StatusOK {
				return fmt.Errorf("got %s", response.Status)
			}
			return nil
		})
	}
}

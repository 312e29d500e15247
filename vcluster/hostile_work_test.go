// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/gateway"
	"github.com/berth-dev/berth/vcluster"
)

// slowAdmission takes its time over config maps called slow-…, whatever becomes of their request.
type slowAdmission struct {
	entered chan struct{}
	proceed chan struct{}
}

func (s slowAdmission) Handles(admission.Operation) bool { return true }

func (s slowAdmission) Validate(_ context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().Resource == "configmaps" && strings.HasPrefix(a.GetName(), "slow-") {
		s.entered <- struct{}{}
		<-s.proceed
	}
	return nil
}

// slowSpace is a space behind a gateway, with a slow admission.
func slowSpace(t *testing.T, limits bounds.Limits) (slowAdmission, *bounds.Account, rest.Interface) {
	t.Helper()
	slow := slowAdmission{entered: make(chan struct{}, 100), proceed: make(chan struct{})}
	door := openFrontDoor(t)
	c := door.config(t, "slow")
	c.Controllers, c.Account = nil, bounds.NewAccount(limits)
	c.Admission = []vcluster.Admission{{Name: "Slow", New: func() (admission.Interface, error) { return slow, nil }}}
	p := door.start(t, c)
	router := &gateway.Router{
		Lookup:  func(string) http.Handler { return p.Handler() },
		Limiter: gateway.NewLimiter(func(string) bounds.Limits { return limits }),
	}
	door.mu.Lock()
	door.spaces["slow"] = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		r.URL.Path = "/spaces/slow" + r.URL.Path
		router.ServeHTTP(w, r)
	})
	door.mu.Unlock()
	return slow, c.Account, clientset(t, admin(t, p)).CoreV1().RESTClient()
}

// L1, L3: what a request has begun counts until it ends, whether its client waits for it or not.
func TestHostileClientsThatLeaveKeepTheirSlots(t *testing.T) {
	const limit = 3
	for name, leave := range map[string]time.Duration{"disconnect": 0, "short timeout": 500 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			slow, account, client := slowSpace(t, bounds.Limits{bounds.RequestsWriting: limit})
			create := func(ctx context.Context, name string, timeout time.Duration) error {
				m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"x": strings.Repeat("x", 10<<10)}}
				request := client.Post().Namespace("default").Resource("configmaps").MaxRetries(0).Body(m)
				if timeout > 0 {
					request.VersionedParams(&metav1.CreateOptions{}, scheme.ParameterCodec).Param("timeout", timeout.String())
				}
				return request.Do(ctx).Error()
			}
			var refused, entered int
			for i := range 3 * limit {
				ctx, cancel := context.WithCancel(t.Context())
				done := make(chan error, 1)
				go func() { done <- create(ctx, fmt.Sprintf("slow-%d", i), leave) }()
				var err error
				select {
				case <-slow.entered:
					entered++
					if leave == 0 {
						cancel()
					}
					err = <-done
				case err = <-done:
				}
				cancel()
				if apierrors.IsTooManyRequests(err) && strings.Contains(err.Error(), "requests-writing") {
					refused++
				} else if err == nil {
					t.Error("a slow request succeeds")
				}
				time.Sleep(50 * time.Millisecond) //nolint:forbidigo // What would free the slot wrongly has the time to.
			}
			if entered != limit || refused != 2*limit {
				t.Errorf("%d requests are under way and %d were refused, with a limit of %d", entered, refused, limit)
			}
			if used := account.Used(bounds.MemoryBytes); used < limit*10<<10 {
				t.Errorf("%d bytes are accounted with %d requests under way", used, entered)
			}
			close(slow.proceed)
			eventually(t, func() error {
				if err := create(t.Context(), "quick", 0); err != nil && !apierrors.IsAlreadyExists(err) {
					return err
				}
				if used := account.Used(bounds.MemoryBytes); used != 0 {
					return fmt.Errorf("%d bytes are accounted with nothing under way", used)
				}
				return nil
			})
		})
	}
}

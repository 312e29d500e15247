// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package aggregation

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apiserver/pkg/authentication/user"
	v1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"

	"github.com/berth-dev/berth/internal/safego"
)

const (
	// discoveryTimeout is how long a server may take to say what it serves.
	discoveryTimeout = 5 * time.Second
	// attempts is how many of a service's pods are tried: one that does not answer
	// must not make it unavailable.
	attempts = 5
	// maxMessage is how many bytes a status says of why.
	maxMessage = 1 << 10
)

// aggregator is who upstream's asks as: servers let it.
var aggregator = &user.DefaultInfo{Name: "system:kube-aggregator", Groups: []string{user.SystemPrivilegedGroup}} //nolint:gochecknoglobals // does not change

// unmet is why an API service can't be had, by the reasons that upstream gives.
type unmet struct {
	reason string
	err    error
}

func (u *unmet) Error() string { return u.err.Error() }

func because(reason, format string, args ...any) error {
	return &unmet{reason, fmt.Errorf(format, args...)}
}

// condition is what an API service's status says of err.
func condition(err error) v1.APIServiceCondition {
	c := v1.APIServiceCondition{
		Type: v1.Available, Status: v1.ConditionTrue, LastTransitionTime: metav1.Now(), Reason: "Passed", Message: "all checks passed",
	}
	if err == nil {
		return c
	}
	c.Status, c.Reason, c.Message = v1.ConditionFalse, "FailedDiscoveryCheck", short(err.Error())
	var u *unmet
	if errors.As(err, &u) {
		c.Reason = u.reason
	}
	return c
}

// check tells what keeps a server from being asked.
func (a *run) check(ctx context.Context, s *server) error {
	if err := a.exposed(s.spec.Service); err != nil {
		return err
	}
	if err := s.answers(ctx); err == nil {
		return nil
	}
	// Its other pods, perhaps.
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make(chan error, attempts-1)
	var asking sync.WaitGroup
	defer asking.Wait()
	for range cap(errs) {
		safego.Go(&asking, "ask an aggregated API", func() { errs <- s.answers(ctx) }, func(err error) { errs <- err })
	}
	var err error
	for range cap(errs) {
		if err = <-errs; err == nil {
			cancel()
			return nil
		}
	}
	s.transport.CloseIdleConnections()
	return err
}

// exposed tells what keeps a service from leading to a pod.
func (a *run) exposed(ref *v1.ServiceReference) error {
	service, err := a.Config.Services.Lister().Services(ref.Namespace).Get(ref.Name)
	if apierrors.IsNotFound(err) {
		return because("ServiceNotFound", "service/%s in %q is not present", ref.Name, ref.Namespace)
	}
	if err != nil {
		return because("ServiceAccessError", "service/%s in %q cannot be checked due to: %w", ref.Name, ref.Namespace, err)
	}
	if service.Spec.Type != corev1.ServiceTypeClusterIP {
		return nil
	}
	i := slices.IndexFunc(service.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == *ref.Port })
	if i < 0 {
		return because("ServicePortError", "service/%s in %q is not listening on port %d", ref.Name, ref.Namespace, *ref.Port)
	}
	port := service.Spec.Ports[i].Name
	found, err := a.Slices.Lister().EndpointSlices(ref.Namespace).List(labels.SelectorFromSet(labels.Set{discoveryv1.LabelServiceName: ref.Name}))
	if err != nil {
		return because("EndpointsAccessError", "service/%s in %q cannot be checked due to: %w", ref.Name, ref.Namespace, err)
	}
	if len(found) == 0 {
		return because("EndpointsNotFound", "cannot find endpointslices for service/%s in %q", ref.Name, ref.Namespace)
	}
	if !slices.ContainsFunc(found, func(e *discoveryv1.EndpointSlice) bool { return leads(e, port) }) {
		return because("MissingEndpoints", "endpointslices for service/%s in %q have no addresses with port name %q", ref.Name, ref.Namespace, port)
	}
	return nil
}

// leads tells whether a slice has a pod that is ready and the port.
func leads(e *discoveryv1.EndpointSlice, port string) bool {
	return slices.ContainsFunc(e.Endpoints, func(e discoveryv1.Endpoint) bool {
		return e.Conditions.Ready == nil || *e.Conditions.Ready
	}) && slices.ContainsFunc(e.Ports, func(p discoveryv1.EndpointPort) bool {
		return p.Name != nil && *p.Name == port && p.Port != nil
	})
}

// answers asks one pod what its server must serve.
func (s *server) answers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, discoveryTimeout)
	defer cancel()
	resp, err := s.get(ctx, aggregator, "/apis/"+s.spec.Group+"/"+s.spec.Version, nil)
	if err != nil {
		return err
	}
	// Read, the connection is of further use.
	_, _ = io.CopyN(io.Discard, resp.Body, maxDocument)
	_ = resp.Body.Close()
	if resp.StatusCode < http.StatusOK || resp.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("bad status from %s: %d", resp.Request.URL, resp.StatusCode)
	}
	return nil
}

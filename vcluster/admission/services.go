// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package admission

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/storage/names"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/translate"
)

// Reserve makes or updates v's object on the host, and returns it with the
// addresses and ports that the host gave it; nil if v takes no part there. v's
// resource version is that of the one that it takes the place of, "" if it is
// new; ctx ends with the request. current reads the space's service of v's name.
type Reserve func(ctx context.Context, v *corev1.Service, current Current) (*corev1.Service, error)

// Current reads a service from the space's store.
type Current func(ctx context.Context) (*corev1.Service, error)

// Addresses gives services the cluster IPs and node ports of their host
// objects, at the moment that the space takes them in: they work on the host's
// network from then on, and never change.
type Addresses struct {
	*admission.Handler
	reserve Reserve
	client  kubernetes.Interface
	turns   turns
	account *bounds.Account
}

// NewAddresses returns the plugin. The account, which may be nil, bounds what it asks the host for.
func NewAddresses(reserve Reserve, account *bounds.Account) *Addresses {
	return &Addresses{Handler: admission.NewHandler(admission.Create, admission.Update), reserve: reserve, account: account}
}

var _ admission.MutationInterface = (*Addresses)(nil)

// SetExternalKubeClientSet implements upstream's initializer interface.
func (p *Addresses) SetExternalKubeClientSet(client kubernetes.Interface) { p.client = client }

// ValidateInitialization implements [admission.InitializationValidator].
func (p *Addresses) ValidateInitialization() error {
	if p.client == nil {
		return fmt.Errorf("the space's client is missing")
	}
	return nil
}

// Admit implements [admission.MutationInterface].
func (p *Addresses) Admit(ctx context.Context, a admission.Attributes, _ admission.ObjectInterfaces) error {
	if a.GetResource().Group != "" || a.GetResource().Resource != "services" || a.GetSubresource() != "" || a.IsDryRun() {
		return nil
	}
	service, ok := a.GetObject().(*core.Service)
	if !ok || service.Spec.Type == core.ServiceTypeExternalName {
		return nil
	}
	replaces := ""
	if old, ok := a.GetOldObject().(*core.Service); ok && a.GetOperation() == admission.Update {
		keep(service, old)
		stale := service.ResourceVersion != "" && service.ResourceVersion != old.ResourceVersion
		if stale || !wantsAllocation(service) { // what is stale, the API server refuses
			return nil
		}
		replaces = old.ResourceVersion
	}
	v := &corev1.Service{}
	if err := versioned(service, v); err != nil {
		return err
	}
	v.ResourceVersion = replaces
	if errs := translate.CheckService(&v.Spec); len(errs) > 0 {
		return invalid(a, errs)
	}
	v.Namespace = a.GetNamespace()
	if a.GetOperation() == admission.Create {
		if service.Name == "" && service.GenerateName != "" {
			service.Name = names.SimpleNameGenerator.GenerateName(service.GenerateName)
		}
		v.Name, v.UID = service.Name, ""
	}
	current := func(ctx context.Context) (*corev1.Service, error) {
		return p.client.CoreV1().Services(v.Namespace).Get(ctx, v.Name, metav1.GetOptions{})
	}
	if err := p.turns.take(ctx, types.NamespacedName{Namespace: v.Namespace, Name: v.Name}); err != nil {
		return apierrors.NewServerTimeout(core.Resource("services"), strings.ToLower(string(a.GetOperation())), 1)
	}
	before, err := current(ctx)
	switch {
	case a.GetOperation() == admission.Create && err == nil:
		// Not left to the API server: by then it may be gone, and this one would get an address that is not the host's.
		return apierrors.NewAlreadyExists(core.Resource("services"), v.Name)
	case err != nil && !apierrors.IsNotFound(err): // such as while the space stops
		return unavailable("the service cannot be read now; try again")
	case a.GetOperation() == admission.Update && (err != nil || before.ResourceVersion != replaces):
		return nil // stale by now: the API server refuses it, or asks again with what is there
	}
	had := 0
	if err == nil {
		had = max(1, len(before.Spec.Ports))
	}
	// The store would refuse it a moment later: then the host would have its ports for a minute.
	if err := p.account.Promise(bounds.WorkOf(ctx), bounds.ServicePortsTotal, int64(max(1, len(v.Spec.Ports))-had)); err != nil {
		return admission.NewForbidden(a, field.Forbidden(field.NewPath("spec", "ports"), err.Error()))
	}
	legacyscheme.Scheme.Default(v)
	host, err := p.reserve(ctx, v, current)
	if err != nil {
		return refused(a, err)
	}
	if host == nil {
		return nil
	}
	asked := service.Spec.ClusterIP != ""
	take(service, host)
	if a.GetOperation() == admission.Create && !asked { // an address that is asked for is the API server's to refuse
		return p.released(ctx, host.Spec.ClusterIPs)
	}
	return nil
}

// releaseTimeout bounds the wait until the API server has released the addresses of a service that is gone.
const releaseTimeout = 2 * time.Second

// released waits until no service of the space has the addresses: one of the same name that was deleted a moment ago,
// before the syncer had seen it, leaves its reservation to the next.
func (p *Addresses) released(ctx context.Context, addresses []string) error {
	for _, address := range addresses {
		if address == corev1.ClusterIPNone {
			continue
		}
		err := wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, releaseTimeout, true, func(ctx context.Context) (bool, error) {
			_, err := p.client.NetworkingV1().IPAddresses().Get(ctx, address, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return true, nil
			}
			return false, err
		})
		switch {
		case wait.Interrupted(err):
			return unavailable("another service still uses the address; try again")
		case err != nil: // such as while the space stops
			return unavailable("the address of the service cannot be checked now; try again")
		}
	}
	return nil
}

// refused passes on the host's word, without the host's names for things.
func refused(a admission.Attributes, err error) error {
	switch {
	case apierrors.IsAlreadyExists(err):
		return apierrors.NewAlreadyExists(core.Resource("services"), a.GetName())
	case errors.Is(err, bounds.ErrExceeded):
		return admission.NewForbidden(a, err)
	case apierrors.IsInvalid(err), apierrors.IsForbidden(err), apierrors.IsBadRequest(err):
		return admission.NewForbidden(a, fmt.Errorf("the host refuses the service: %s", cause(err)))
	default:
		return unavailable("the host cannot assign an address to the service now; try again")
	}
}

// unavailable returns an error after which clients of Kubernetes try again by themselves.
func unavailable(message string) error {
	err := apierrors.NewServiceUnavailable(message)
	err.ErrStatus.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return err
}

// cause is what an API error says of the field, or else its message's last
// part, which names no object of the host's.
func cause(err error) string {
	var status apierrors.APIStatus
	if !errors.As(err, &status) || status.Status().Details == nil || len(status.Status().Details.Causes) == 0 {
		if strings.Contains(err.Error(), "exceeded quota") {
			return "its quota for services is used up"
		}
		return "its address or port is not available"
	}
	first := status.Status().Details.Causes[0]
	return first.Field + ": " + first.Message
}

// keep fills in what a replacement left out and is not its to change, as the API
// server does later: the UID, without which it would be a new service to the
// host, and the cluster IPs.
func keep(service, old *core.Service) {
	if service.UID == "" {
		service.UID = old.UID
	}
	if service.Spec.ClusterIP == "" && old.Spec.Type != core.ServiceTypeExternalName {
		service.Spec.ClusterIP, service.Spec.ClusterIPs = old.Spec.ClusterIP, old.Spec.ClusterIPs
	}
}

// wantsAllocation reports whether an update leaves an address or a port for
// the API server to choose.
func wantsAllocation(s *core.Service) bool {
	if s.Spec.ClusterIP == "" {
		return true
	}
	if s.Spec.Type != core.ServiceTypeNodePort && s.Spec.Type != core.ServiceTypeLoadBalancer {
		return false
	}
	for _, port := range s.Spec.Ports {
		if port.NodePort == 0 {
			return true
		}
	}
	return false
}

// take copies the host's allocations, never its other fields.
func take(service *core.Service, host *corev1.Service) {
	if host.Spec.ClusterIP != "" {
		service.Spec.ClusterIP, service.Spec.ClusterIPs = host.Spec.ClusterIP, host.Spec.ClusterIPs
	}
	service.Spec.HealthCheckNodePort = host.Spec.HealthCheckNodePort
	type key struct {
		port     int32
		protocol core.Protocol
	}
	nodePorts := make(map[key]int32, len(host.Spec.Ports))
	for _, p := range host.Spec.Ports {
		nodePorts[key{p.Port, core.Protocol(p.Protocol)}] = p.NodePort
	}
	for i := range service.Spec.Ports {
		port := &service.Spec.Ports[i]
		if nodePort, ok := nodePorts[key{port.Port, port.Protocol}]; ok {
			port.NodePort = nodePort
		}
	}
}

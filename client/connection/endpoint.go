// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Labels returns the labels of the Services and the pods of Berth.
func Labels() client.MatchingLabels { return client.MatchingLabels{"app.kubernetes.io/name": "berth"} }

// Endpoint is a port of a pod of Berth.
type Endpoint struct {
	Pod  types.NamespacedName
	Port int32
}

// FindEndpoint returns a pod of Berth behind the address of a space, by the Services on the host. Of several Services, it takes
// the one that has the address, or that is in the namespace of the kubeconfig's Secret.
func FindEndpoint(ctx context.Context, host client.Reader, c *Config, namespace string) (Endpoint, error) {
	name, port, err := c.address()
	if err != nil {
		return Endpoint{}, err
	}
	var services corev1.ServiceList
	if err := host.List(ctx, &services, Labels()); err != nil {
		// Rights in one namespace are enough.
		if namespace == "" || host.List(ctx, &services, Labels(), client.InNamespace(namespace)) != nil {
			return Endpoint{}, fmt.Errorf("find the Service of Berth: %w", err)
		}
	}
	service, err := chooseService(services.Items, name, namespace)
	if err != nil {
		return Endpoint{}, err
	}
	var pods corev1.PodList
	if err := host.List(ctx, &pods, client.InNamespace(service.Namespace), client.MatchingLabels(service.Spec.Selector)); err != nil {
		return Endpoint{}, fmt.Errorf("find the pods of the Service %s/%s: %w", service.Namespace, service.Name, err)
	}
	target := targetOf(service, int32(port))
	for i := range pods.Items {
		if pod := &pods.Items[i]; ready(pod) {
			if number, found := resolve(pod, target); found {
				return Endpoint{types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, number}, nil
			}
		}
	}
	return Endpoint{}, fmt.Errorf("no pod of the Service %s/%s is ready with the port %s; check it with: kubectl --namespace %[1]s get pods", service.Namespace, service.Name, target.String())
}

func chooseService(services []corev1.Service, host, namespace string) (*corev1.Service, error) {
	services = slices.DeleteFunc(services, func(s corev1.Service) bool { return len(s.Spec.Selector) == 0 || len(s.Spec.Ports) == 0 })
	if len(services) == 0 {
		return nil, errors.New("no Service with the label app.kubernetes.io/name=berth found on the host; expose Berth, and set its --advertise")
	}
	for _, matches := range []func(*corev1.Service) bool{
		func(s *corev1.Service) bool {
			name := s.Name + "." + s.Namespace
			return host == name || host == name+".svc" || strings.HasPrefix(host, name+".svc.")
		},
		func(s *corev1.Service) bool { return s.Namespace == namespace },
		func(*corev1.Service) bool { return len(services) == 1 },
	} {
		if i := slices.IndexFunc(services, func(s corev1.Service) bool { return matches(&s) }); i >= 0 {
			return &services[i], nil
		}
	}
	var names []string
	for _, s := range services {
		names = append(names, s.Namespace+"/"+s.Name)
	}
	return nil, fmt.Errorf("several Services have the label app.kubernetes.io/name=berth, and none has the address %s: %s; choose the namespace with --secret-namespace", host, strings.Join(names, ", "))
}

// targetOf returns the target of the port with a number, or of the one that is named https, or of the first.
func targetOf(s *corev1.Service, port int32) intstr.IntOrString {
	at := slices.IndexFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Port == port })
	if at < 0 {
		at = max(0, slices.IndexFunc(s.Spec.Ports, func(p corev1.ServicePort) bool { return p.Name == "https" }))
	}
	p := s.Spec.Ports[at]
	if p.TargetPort.IntValue() == 0 && p.TargetPort.StrVal == "" {
		return intstr.FromInt32(p.Port)
	}
	return p.TargetPort
}

func resolve(pod *corev1.Pod, port intstr.IntOrString) (int32, bool) {
	if port.Type == intstr.Int {
		return port.IntVal, true
	}
	for _, container := range pod.Spec.Containers {
		for _, p := range container.Ports {
			if p.Name == port.StrVal {
				return p.ContainerPort, true
			}
		}
	}
	return 0, false
}

func ready(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// FindPod returns a pod of Berth on the host that is ready.
func FindPod(ctx context.Context, host client.Reader) (types.NamespacedName, error) {
	var pods corev1.PodList
	if err := host.List(ctx, &pods, Labels()); err != nil {
		return types.NamespacedName{}, fmt.Errorf("find the pods of Berth: %w", err)
	}
	for i := range pods.Items {
		if pod := &pods.Items[i]; ready(pod) {
			return types.NamespacedName{Namespace: pod.Namespace, Name: pod.Name}, nil
		}
	}
	return types.NamespacedName{}, errors.New("no pod with the label app.kubernetes.io/name=berth is ready on the host")
}

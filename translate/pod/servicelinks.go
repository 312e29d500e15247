// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pod

import (
	"cmp"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kubernetes/pkg/apis/core/v1/helper"
	"k8s.io/kubernetes/pkg/kubelet/envvars"

	"github.com/berth-dev/berth/bounds"
)

// serviceEnv is what a kubelet would tell v's containers of services, were the
// space a cluster of its own. On the host, the kubelet is told not to, but it
// always adds the variables of its own API: the space's take their place, or
// empty ones.
//
// They stand in front of the container's own, which can refer to them and, as
// of two variables of one name the later counts, override them.
//
// Every port of every Service is in every container. That product is known before
// anything is made of it: beyond [bounds.ServiceLinkVariables] or
// [bounds.PodBytes], err says so, and env has the variables of the API only, if
// these fit. The capacity of env is its length.
func serviceEnv(v *corev1.Pod, in Surroundings) (env []corev1.EnvVar, err error) {
	linked, api := linkedServices(v, in)
	if env, err = linkVariables(v, linked); err != nil {
		if env, _ = linkVariables(v, api); env == nil {
			env, _ = linkVariables(v, nil)
		}
	}
	return env, err
}

// CheckServiceLinks returns an error that names the limit if v is translated
// without the variables of Services because they are too many.
func CheckServiceLinks(v *corev1.Pod, in Surroundings) error {
	_, err := serviceEnv(v, in)
	return err
}

// linkedServices are those that v's containers are told of, and of these the API.
func linkedServices(v *corev1.Pod, in Surroundings) (all, api []*corev1.Service) {
	most := bounds.ServicePorts.Max()
	usable := func(service *corev1.Service) bool {
		return helper.IsServiceIPSet(service) && len(service.Spec.Ports) > 0 && len(service.Spec.Ports) <= most
	}
	if in.API != nil && usable(in.API) {
		api = append(api, in.API)
	}
	apis := slices.Clone(api)
	if links := v.Spec.EnableServiceLinks; links == nil || *links {
		for _, service := range in.Services {
			switch {
			case !usable(service):
			case service.Name != apiService:
				all = append(all, service)
			case service.Namespace != metav1.NamespaceDefault:
				apis = append(apis, service) // a kubelet, too, lets it count more
			}
		}
	}
	slices.SortFunc(all, func(a, b *corev1.Service) int { return cmp.Compare(a.Name, b.Name) })
	// The API comes last: a service "kubernetes-service", too, has a
	// KUBERNETES_SERVICE_PORT, and which counts must not hang on chance.
	return append(all, apis...), api
}

// linkVariables are the variables of these services in one container, nil and an
// error if they are too many in all of them together.
func linkVariables(v *corev1.Pod, services []*corev1.Service) ([]corev1.EnvVar, error) {
	containers := int64(countContainers(&v.Spec))
	variables := int64(0)
	for _, service := range services {
		variables += 3 + 4*int64(len(service.Spec.Ports))
		for i := range service.Spec.Ports {
			if service.Spec.Ports[i].Name != "" {
				variables++
			}
		}
	}
	if err := bounds.ServiceLinkVariables.Check(variables * containers); err != nil {
		return nil, err
	}
	links := envvars.FromServices(services)
	env := make([]corev1.EnvVar, 0, len(apiEnv())+len(links))
	for _, name := range apiEnv() {
		if !slices.ContainsFunc(links, func(e corev1.EnvVar) bool { return e.Name == name }) {
			env = append(env, corev1.EnvVar{Name: name})
		}
	}
	env = append(env, links...)
	size := 0
	for i := range env {
		size += env[i].Size()
	}
	if err := bounds.PodBytes.Check(int64(v.Size()) + int64(size)*containers); err != nil && len(services) > 0 {
		return nil, err
	}
	return slices.Clip(env), nil
}

func countContainers(spec *corev1.PodSpec) int {
	return len(spec.InitContainers) + len(spec.Containers) + len(spec.EphemeralContainers)
}

// apiService is the name of the service, in the namespace default, that leads to a cluster's API.
const apiService = "kubernetes"

// apiEnv names the variables that a kubelet always adds.
var apiEnv = sync.OnceValue(func() (names []string) {
	for _, e := range envvars.FromServices([]*corev1.Service{{
		ObjectMeta: metav1.ObjectMeta{Name: apiService},
		Spec:       corev1.ServiceSpec{ClusterIP: "any", Ports: []corev1.ServicePort{{Name: "https", Port: 443}}},
	}}) {
		names = append(names, e.Name)
	}
	return names
})

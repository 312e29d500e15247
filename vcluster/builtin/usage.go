// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package builtin

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/internalversion"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apiserver/pkg/endpoints/request"
	"k8s.io/apiserver/pkg/registry/generic"
	"k8s.io/apiserver/pkg/registry/rest"
	genericapiserver "k8s.io/apiserver/pkg/server"
	serverstorage "k8s.io/apiserver/pkg/server/storage"
	"k8s.io/metrics/pkg/apis/metrics"
	"k8s.io/metrics/pkg/apis/metrics/install"
	metricsv1beta1 "k8s.io/metrics/pkg/apis/metrics/v1beta1"
)

// Usage tells what the pods of a space use.
type Usage interface {
	// PodMetrics of the pods in a namespace, or in all if it is empty, that match:
	// of those of which it is known.
	PodMetrics(ctx context.Context, namespace string, label labels.Selector, field fields.Selector) ([]metricsv1beta1.PodMetrics, error)
}

// usageGroup is the API group of what pods use. It is offered only in a space
// that knows.
const usageGroup = metrics.GroupName

// usageProvider serves [usageGroup] as metrics-server does, but from the space's
// own Usage, and without nodes: what they use is never known (N1, U6).
type usageProvider struct{}

func (usageProvider) GroupName() string { return usageGroup }

func (usageProvider) NewRESTStorage(serverstorage.APIResourceConfigSource, generic.RESTOptionsGetter) (genericapiserver.APIGroupInfo, error) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	info := genericapiserver.NewDefaultAPIGroupInfo(usageGroup, scheme, metav1.ParameterCodec, serializer.NewCodecFactory(scheme))
	info.VersionedResourcesStorageMap[metricsv1beta1.SchemeGroupVersion.Version] = map[string]rest.Storage{
		"pods": podUsage{rest.NewDefaultTableConvertor(metrics.Resource("pods")), scheme},
	}
	return info, nil
}

type podUsage struct {
	rest.TableConvertor
	scheme *runtime.Scheme
}

var (
	_ rest.Getter               = podUsage{}
	_ rest.Lister               = podUsage{}
	_ rest.Scoper               = podUsage{}
	_ rest.KindProvider         = podUsage{}
	_ rest.SingularNameProvider = podUsage{}
)

func (podUsage) New() runtime.Object     { return &metrics.PodMetrics{} }
func (podUsage) NewList() runtime.Object { return &metrics.PodMetricsList{} }
func (podUsage) Destroy()                {}
func (podUsage) Kind() string            { return "PodMetrics" }
func (podUsage) NamespaceScoped() bool   { return true }
func (podUsage) GetSingularName() string { return "pod" }

func (r podUsage) list(ctx context.Context, label labels.Selector, field fields.Selector) (*metrics.PodMetricsList, error) {
	space, err := spaceOf(ctx)
	if err != nil {
		return nil, err
	}
	if space.Usage == nil {
		return nil, apierrors.NewServiceUnavailable("nothing is known of what pods use")
	}
	known, err := space.Usage.PodMetrics(ctx, request.NamespaceValue(ctx), label, field)
	if err != nil {
		return nil, err
	}
	out := &metrics.PodMetricsList{}
	return out, r.scheme.Convert(&metricsv1beta1.PodMetricsList{Items: known}, out, nil)
}

func (r podUsage) List(ctx context.Context, o *internalversion.ListOptions) (runtime.Object, error) {
	label, field := labels.Everything(), fields.Everything()
	if o != nil && o.LabelSelector != nil {
		label = o.LabelSelector
	}
	if o != nil && o.FieldSelector != nil {
		field = o.FieldSelector
	}
	return r.list(ctx, label, field)
}

func (r podUsage) Get(ctx context.Context, name string, _ *metav1.GetOptions) (runtime.Object, error) {
	found, err := r.list(ctx, labels.Everything(), fields.OneTermEqualSelector(metav1.ObjectNameField, name))
	if err != nil {
		return nil, err
	}
	if len(found.Items) == 0 {
		return nil, apierrors.NewNotFound(metrics.Resource("podmetrics"), fmt.Sprintf("%s/%s", request.NamespaceValue(ctx), name))
	}
	return &found.Items[0], nil
}

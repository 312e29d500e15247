// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"context"
	"fmt"
	"sync"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// An extension is a resource that is no part of Kubernetes itself: a host has it by
// a CustomResourceDefinition. Where it is enabled, spaces get the host's, so
// that both sides mean the same.
type Extension struct {
	GroupVersion schema.GroupVersion
	Object       client.Object
}

func Extensions() map[string]Extension {
	return map[string]Extension{
		resources.VolumeSnapshots: {snapshotv1.SchemeGroupVersion, &snapshotv1.VolumeSnapshot{}},
		resources.SnapshotClasses: {snapshotv1.SchemeGroupVersion, &snapshotv1.VolumeSnapshotClass{}},
		resources.Gateways:        {gatewayv1.SchemeGroupVersion, &gatewayv1.Gateway{}},
		resources.HTTPRoutes:      {gatewayv1.SchemeGroupVersion, &gatewayv1.HTTPRoute{}},
		resources.GatewayClasses:  {gatewayv1.SchemeGroupVersion, &gatewayv1.GatewayClass{}},
	}
}

// crd is the name of a resource's definition.
func (e Extension) crd(resource string) string { return resource + "." + e.GroupVersion.Group }

// Scheme are all types that are synced.
var Scheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme, snapshotv1.AddToScheme, gatewayv1.Install} {
		if err := add(s); err != nil {
			panic(fmt.Sprintf("two types of one name: %v", err))
		}
	}
	return s
})

// api reaches the group of an extension, which speaks JSON only.
func (e Extension) api(config *rest.Config) (rest.Interface, error) {
	config = rest.CopyConfig(config)
	config.GroupVersion, config.APIPath = &e.GroupVersion, "/apis"
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, ""
	config.NegotiatedSerializer = serializer.NewCodecFactory(Scheme()).WithoutConversion()
	return rest.RESTClientFor(config)
}

// extend finds the definitions on the host of those that are enabled.
func (h *Host) extend(ctx context.Context) error {
	for resource, e := range Extensions() {
		if !h.Sync.On(resource) {
			continue
		}
		definition := &apiextensionsv1.CustomResourceDefinition{}
		if err := h.Reader.Get(ctx, client.ObjectKey{Name: e.crd(resource)}, definition); err != nil {
			if apierrors.IsNotFound(err) {
				return fmt.Errorf("sync of %s: the host has no CustomResourceDefinition %s; install it, or disable the resource", resource, e.crd(resource))
			}
			return fmt.Errorf("read the host's definition of %s: %w", resource, err)
		}
		if h.Definitions[resource] = spaceDefinition(definition, e.GroupVersion.Version); len(h.Definitions[resource].Spec.Versions) == 0 {
			return fmt.Errorf("sync of %s: the host's CustomResourceDefinition %s does not serve version %s; install one that does, or disable the resource", resource, e.crd(resource), e.GroupVersion.Version)
		}
	}
	return nil
}

// spaceDefinition is what a space gets of the host's definition: the version that
// is synced, if the host serves it, so that nobody needs to convert.
func spaceDefinition(host *apiextensionsv1.CustomResourceDefinition, version string) *apiextensionsv1.CustomResourceDefinition {
	out := &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: host.Name, Labels: map[string]string{translate.LabelManagedBy: translate.ManagedBy}},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: host.Spec.Group, Names: host.Spec.Names, Scope: host.Spec.Scope,
			Conversion: &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter},
		},
	}
	if approved, ok := host.Annotations[apiextensionsv1.KubeAPIApprovedAnnotation]; ok {
		out.Annotations = map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: approved}
	}
	for _, v := range host.Spec.Versions {
		if v.Name == version && v.Served {
			v.Storage, out.Spec.Versions = true, append(out.Spec.Versions, v)
		}
	}
	return out
}

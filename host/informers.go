// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package host

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
)

// newFactory returns informers of what tweak selects. They keep no managed
// fields, which are a third of an object and of no use here.
func newFactory(client kubernetes.Interface, resync time.Duration, tweak func(*metav1.ListOptions)) informers.SharedInformerFactory {
	return informers.NewSharedInformerFactoryWithOptions(client, resync,
		informers.WithTweakListOptions(tweak),
		informers.WithTransform(func(obj any) (any, error) {
			if object, err := meta.Accessor(obj); err == nil {
				object.SetManagedFields(nil)
			}
			return obj, nil
		}))
}

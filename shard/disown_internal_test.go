// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// A space that has come back has its place before what was cached of it is reduced. Then, it keeps its objects.
func TestASpaceWithAPlaceIsNotDisowned(t *testing.T) {
	host, err := syncer.NewHost(&rest.Config{Host: "https://host.invalid"}, syncer.Options{OwnOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	if err := host.Own(t.Context(), "back", "gone"); err != nil {
		t.Fatal(err)
	}
	for _, space := range []string{"back", "gone"} {
		meta := metav1.ObjectMeta{Namespace: translate.HostNamespacePrefix + space, Name: "settings", Labels: map[string]string{translate.LabelSpace: space}}
		if err := host.Routers[resources.ConfigMaps].Add(&corev1.ConfigMap{ObjectMeta: meta}); err != nil {
			t.Fatal(err)
		}
	}
	s := &Shard{host: host, places: map[string]*place{"back": {name: "back"}}}
	for _, space := range []string{"back", "gone"} {
		if err := s.Disown(space); err != nil {
			t.Fatal(err)
		}
	}
	if own, _ := host.CachedObjects(); own != 1 || host.Routers[resources.ConfigMaps].Get("berth-back/settings") == nil {
		t.Errorf("%d objects are cached, want that of the space with a place", own)
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package volumelabels

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// S1: a volume has the labels of its space and tenant, and only what differs is written.
func TestAVolumeIsLabeledWithWhoHasIt(t *testing.T) {
	for name, tc := range map[string]struct {
		labels        map[string]string
		tenant, patch string
	}{
		"a new volume":         {nil, "acme", `{"berth.dev/space":"shop","berth.dev/tenant":"acme"}`},
		"of no tenant":         {map[string]string{"a": "b"}, "", `{"berth.dev/space":"shop"}`},
		"it has them":          {map[string]string{"berth.dev/space": "shop", "berth.dev/tenant": "acme"}, "acme", ""},
		"of another tenant":    {map[string]string{"berth.dev/space": "shop", "berth.dev/tenant": "evil"}, "acme", `{"berth.dev/tenant":"acme"}`},
		"of no tenant anymore": {map[string]string{"berth.dev/space": "shop", "berth.dev/tenant": "acme"}, "", `{"berth.dev/tenant":null}`},
		"of an earlier space":  {map[string]string{"berth.dev/space": "stock"}, "", `{"berth.dev/space":"shop"}`},
	} {
		t.Run(name, func(t *testing.T) {
			v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: "pvc-1", UID: "u", ResourceVersion: "7", Labels: tc.labels}}
			patch, differs := patchOf(v, "shop", tc.tenant)
			if differs != (tc.patch != "") {
				t.Fatalf("it is patched: %t", differs)
			}
			if !differs {
				return
			}
			data, err := patch.Data(v)
			if want := `{"metadata":{"labels":` + tc.patch + `,"resourceVersion":"7","uid":"u"}}`; err != nil || string(data) != want {
				t.Errorf("got %s, %v, want %s", data, err, want)
			}
		})
	}
}

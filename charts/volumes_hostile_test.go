// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// M4: Berth's account may say of a volume of the host whose it is, and nothing else.
func TestHostileWritesOfVolumesAreRefusedByTheHost(t *testing.T) {
	r, ctx := startReleases(t), t.Context()
	volume := func(name, namespace string) *corev1.PersistentVolume {
		v := &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"a": "b"}}, Spec: corev1.PersistentVolumeSpec{
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "disks.example", VolumeHandle: name}},
		}}
		if namespace != "" {
			v.Spec.ClaimRef = &corev1.ObjectReference{Kind: "PersistentVolumeClaim", Namespace: namespace, Name: "data"}
		}
		return v
	}
	for _, v := range []*corev1.PersistentVolume{volume("of-mine", "berth-mine"), volume("of-nobody", ""), volume("of-the-host", "databases")} {
		if err := r.admin.Create(ctx, v); err != nil {
			t.Fatal(err)
		}
	}
	patched := func(name, patch string) error {
		return r.berth.Patch(ctx, &corev1.PersistentVolume{ObjectMeta: metav1.ObjectMeta{Name: name}}, client.RawPatch(types.MergePatchType, []byte(patch)))
	}
	const byPolicy, byRBAC = "ValidatingAdmissionPolicy 'platform-berth'", "cannot "
	const mine = `{"metadata":{"labels":{"berth.dev/space":"mine","berth.dev/tenant":"acme"}}}`
	for name, test := range map[string]struct {
		err  error
		says string
	}{
		"another space":            {patched("of-mine", `{"metadata":{"labels":{"berth.dev/space":"theirs"}}}`), byPolicy},
		"a tenant without a space": {patched("of-mine", `{"metadata":{"labels":{"berth.dev/tenant":"acme"}}}`), byPolicy},
		"nobody's volume":          {patched("of-nobody", mine), byPolicy},
		"the host's volume":        {patched("of-the-host", mine), byPolicy},
		"another label":            {patched("of-mine", `{"metadata":{"labels":{"berth.dev/space":"mine","a":"c"}}}`), byPolicy},
		"taking one away":          {patched("of-mine", `{"metadata":{"labels":{"berth.dev/space":"mine","a":null}}}`), byPolicy},
		"an annotation":            {patched("of-mine", `{"metadata":{"labels":{"berth.dev/space":"mine"},"annotations":{"pv.kubernetes.io/provisioned-by":"x"}}}`), byPolicy},
		"a finalizer":              {patched("of-mine", `{"metadata":{"labels":{"berth.dev/space":"mine"},"finalizers":null}}`), byPolicy},
		"deleting the data":        {patched("of-mine", `{"metadata":{"labels":{"berth.dev/space":"mine"}},"spec":{"persistentVolumeReclaimPolicy":"Delete"}}`), byPolicy},
		"giving it away":           {patched("of-mine", `{"metadata":{"labels":{"berth.dev/space":"theirs"}},"spec":{"claimRef":{"namespace":"berth-theirs"}}}`), byPolicy},
		"taking it":                {patched("of-the-host", `{"metadata":{"labels":{"berth.dev/space":"mine"}},"spec":{"claimRef":{"namespace":"berth-mine"}}}`), byPolicy},
		"deleting it":              {r.berth.Delete(ctx, volume("of-mine", "")), byRBAC},
		"making one":               {r.berth.Create(ctx, volume("new", "berth-mine")), byRBAC},
	} {
		if !apierrors.IsForbidden(test.err) || !strings.Contains(test.err.Error(), test.says) {
			t.Errorf("%s: %v, want it forbidden: %s", name, test.err, test.says)
		}
	}
	for _, patch := range []string{mine, `{"metadata":{"labels":{"berth.dev/tenant":null}}}`} {
		if err := patched("of-mine", patch); err != nil {
			t.Errorf("%s: %v", patch, err)
		}
	}
}

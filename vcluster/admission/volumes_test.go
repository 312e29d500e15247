// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiadmission "k8s.io/apiserver/pkg/admission"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/apis/core"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/vcluster/admission"
)

// S1, M4: where the tenant's own volumes are synced, a claim names one from the start,
// or never: by then, the host may have provisioned another. Without a name, a claim
// still needs a class. What a claim has stays when the option is turned off.
func TestAClaimNamesAVolumeFromTheStartOrNever(t *testing.T) {
	of := func(volume, class, size string) *core.PersistentVolumeClaim {
		v1 := claim("data", volume)
		v1.Spec.StorageClassName = ptr.To(class)
		if size != "" {
			v1.Labels = map[string]string{"size": size}
		}
		internal := &core.PersistentVolumeClaim{}
		if err := legacyscheme.Scheme.Convert(v1, internal, nil); err != nil {
			t.Fatal(err)
		}
		return internal
	}
	for name, tc := range map[string]struct {
		volumes bool
		is, was *core.PersistentVolumeClaim
		says    string
	}{
		"named":               {true, of("archive", "", ""), nil, ""},
		"named, of a class":   {true, of("archive", "manual", ""), nil, ""},
		"not named":           {true, of("", "", ""), nil, "spec.storageClassName"},
		"labeled":             {true, of("archive", "", "a"), of("archive", "", ""), ""},
		"named later":         {true, of("archive", "standard", ""), of("", "standard", ""), "spec.volumeName"},
		"off":                 {false, of("archive", "", ""), nil, "spec.volumeName"},
		"off by now, labeled": {false, of("archive", "", "a"), of("archive", "", ""), ""},
	} {
		t.Run(name, func(t *testing.T) {
			plugin := admission.NewIsolation(false, tc.volumes, translate.Placement{}, &translate.Settings{})
			operation := apiadmission.Create
			if tc.was != nil {
				operation = apiadmission.Update
			}
			a := apiadmission.NewAttributesRecord(tc.is, nil, corev1.SchemeGroupVersion.WithKind("PersistentVolumeClaim"), "default", "data",
				corev1.SchemeGroupVersion.WithResource("persistentvolumeclaims"), "", operation, nil, false, &user.DefaultInfo{Name: "tenant"})
			if tc.was != nil {
				a = apiadmission.NewAttributesRecord(tc.is, tc.was, a.GetKind(), "default", "data", a.GetResource(), "", operation, nil, false, a.GetUserInfo())
			}
			err := plugin.Validate(t.Context(), a, nil)
			if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("got %v, want it refused for %q", err, tc.says)
			}
		})
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"maps"

	resourcev1 "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/translate"
)

// counts has the quota of the space name a class of devices, so that claims may request these. It must be called before the syncer begins.
func (env *testEnv) counts(class string, devices int64) {
	env.hardQuota = maps.Clone(v1alpha1.DefaultQuota())
	env.hardQuota[translate.ClassQuotaName(class)] = *resource.NewQuantity(devices, resource.DecimalSI)
	env.space.Settings.Counted, env.space.Settings.Claims = translate.CountedBy(env.hardQuota), true
}

// claimOfDevice is a claim that requests a device of a class.
func claimOfDevice(name, class string) *resourcev1.ResourceClaim {
	return &resourcev1.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: resourcev1.ResourceClaimSpec{Devices: resourcev1.DeviceClaim{
		Requests: []resourcev1.DeviceRequest{{Name: "r", Exactly: &resourcev1.ExactDeviceRequest{DeviceClassName: class}}},
	}}}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

func TestAQuotaAllowsMore(t *testing.T) {
	quota := func(hard, used map[string]string) client.Object {
		q := &corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "berth-demo", Name: "berth"}}
		q.Status.Hard, q.Status.Used = corev1.ResourceList{}, corev1.ResourceList{}
		for name, value := range hard {
			q.Status.Hard[corev1.ResourceName(name)] = resource.MustParse(value)
		}
		for name, value := range used {
			q.Status.Used[corev1.ResourceName(name)] = resource.MustParse(value)
		}
		return trim(trim(q)) // as it comes, and as a watch has it
	}
	hard := map[string]string{"pods": "10", "requests.cpu": "2"}
	tests := map[string]struct {
		was, is client.Object
		want    bool
	}{
		"a new one":         {nil, quota(hard, nil), false},
		"it is gone":        {quota(hard, nil), nil, true},
		"less used":         {quota(hard, map[string]string{"pods": "10"}), quota(hard, map[string]string{"pods": "9"}), true},
		"more used":         {quota(hard, map[string]string{"pods": "8"}), quota(hard, map[string]string{"pods": "9"}), false},
		"the same used":     {quota(hard, map[string]string{"requests.cpu": "1"}), quota(hard, map[string]string{"requests.cpu": "1000m"}), false},
		"one more one less": {quota(hard, map[string]string{"pods": "8", "requests.cpu": "1"}), quota(hard, map[string]string{"pods": "9", "requests.cpu": "900m"}), true},
		"raised":            {quota(hard, nil), quota(map[string]string{"pods": "11", "requests.cpu": "2"}, nil), true},
		"lowered":           {quota(hard, nil), quota(map[string]string{"pods": "9", "requests.cpu": "2"}, nil), false},
		"other resources":   {quota(hard, nil), quota(map[string]string{"pods": "10"}, nil), true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := eased(test.was, test.is); got != test.want {
				t.Errorf("got %t for %s", got, fmt.Sprint(test.is))
			}
		})
	}
}

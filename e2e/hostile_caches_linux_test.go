// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/bounds"
)

// L3: an empty condition takes three bytes of a patch, and a hundred in the memory of each informer. Three thousand ReplicaSets with
// 9,000 of them each took 2.5 GiB and more, which nothing counted, and were there again after each restart. The limit is a part of
// the usual one, so that the attack takes a part of the time.
func TestHostileObjectsThatGrowInCachesHoldABoundedPartOfTheProcess(t *testing.T) {
	a := attackWithin(t, attackedLimit, configured(t, "spaceDefaults: {limits: {"+bounds.CachedBytes.String()+": 32Mi}}"))
	sets := a.attacker.AppsV1().ReplicaSets(metav1.NamespaceDefault)
	labels := map[string]string{"app": "a"}
	conditions := []byte(`{"status":{"conditions":[` + strings.TrimSuffix(strings.Repeat("{},", 2000), ",") + `]}}`)
	errRefused := errors.New("refused")
	var made atomic.Int64
	workers, ctx := errgroup.WithContext(t.Context())
	for w := range 4 {
		workers.Go(func() error {
			for i := range 750 {
				set, err := sets.Create(ctx, &appsv1.ReplicaSet{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("set-%d-%d", w, i)},
					Spec: appsv1.ReplicaSetSpec{Replicas: ptr.To[int32](0), Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: corev1.PodTemplateSpec{
						ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}},
					}},
				}, metav1.CreateOptions{})
				if err == nil {
					_, err = sets.Patch(ctx, set.Name, types.MergePatchType, conditions, metav1.PatchOptions{}, "status")
				}
				switch {
				case apierrors.IsForbidden(err) && strings.Contains(err.Error(), "limit "+bounds.CachedBytes.String()):
					return errRefused // and that ends the others
				case err == nil:
					made.Add(1)
				case !apierrors.IsTooManyRequests(err) && !apierrors.IsConflict(err):
					return err
				}
			}
			return nil
		})
	}
	if err := workers.Wait(); !errors.Is(err, errRefused) {
		t.Errorf("%d ReplicaSets were made: %v", made.Load(), err)
	}
	a.survives(t)
}

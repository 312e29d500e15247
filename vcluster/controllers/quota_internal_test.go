// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	quota "k8s.io/apiserver/pkg/quota/v1"
	"k8s.io/apiserver/pkg/quota/v1/generic"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/kubernetes/pkg/quota/v1/install"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/vcluster/controllers/views"
)

// evaluatorsOf are of a namespace with pods and claims that name n resources and classes that no other names.
func evaluatorsOf(t *testing.T, pace *views.Pace, n int) map[string]quota.Evaluator {
	t.Helper()
	var objects []runtime.Object
	for i := range n {
		own := metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprint(i)}
		used := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1"), corev1.ResourceName(fmt.Sprintf("example.com/%d", i)): resource.MustParse("1")}
		objects = append(objects,
			&corev1.Pod{ObjectMeta: own, Spec: corev1.PodSpec{Containers: []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: used}}}}},
			&corev1.PersistentVolumeClaim{ObjectMeta: own, Spec: corev1.PersistentVolumeClaimSpec{StorageClassName: ptr.To(fmt.Sprint(i))}})
	}
	factory := informers.NewSharedInformerFactory(fake.NewClientset(objects...), 0)
	listers := generic.ListerFuncForResourceFunc(factory.ForResource)
	settings, err := install.NewQuotaConfigurationForControllers(listers, factory)
	if err != nil {
		t.Fatal(err)
	}
	factory.Core().V1().Pods().Informer()
	factory.Core().V1().PersistentVolumeClaims().Informer()
	factory.Core().V1().ConfigMaps().Informer()
	ctx, cancel := context.WithCancel(t.Context())
	factory.Start(ctx.Done())
	t.Cleanup(func() {
		cancel()
		factory.Shutdown()
	})
	factory.WaitForCacheSync(ctx.Done())
	all := map[string]quota.Evaluator{}
	for _, e := range (boundedEvaluators{generic.NewRegistry(settings.Evaluators()), listers, pace}).List() {
		all[e.GroupResource().String()] = e
	}
	return all
}

// L3: 1,000 pods with 100 names of resources each had the controller copy 100,000 names 1,000 times, for each quota, whenever a pod was
// deleted: half a minute of a processor. A claim names as many classes.
func TestHostileNamesOfResourcesAreNotCountedForQuotasThatLimitOthers(t *testing.T) {
	const objects = 100
	evaluators := evaluatorsOf(t, views.NewPace(t.Context(), clock.RealClock{}, views.NewShare(bounds.NewAccount(nil))), objects)
	for of, want := range map[string]corev1.ResourceList{
		"pods": {
			corev1.ResourcePods: *resource.NewQuantity(objects, resource.DecimalSI), corev1.ResourceRequestsCPU: *resource.NewQuantity(objects, resource.DecimalSI),
			"requests.example.com/7": *resource.NewQuantity(1, resource.DecimalSI), "requests.example.com/none": {},
		},
		"persistentvolumeclaims": {
			corev1.ResourcePersistentVolumeClaims:                  *resource.NewQuantity(objects, resource.DecimalSI),
			"7.storageclass.storage.k8s.io/persistentvolumeclaims": *resource.NewQuantity(1, resource.DecimalSI),
		},
	} {
		stats, err := evaluators[of].UsageStats(quota.UsageStatsOptions{Namespace: "default", Resources: quota.ResourceNames(want)})
		if err != nil || !quota.Equals(stats.Used, want) {
			t.Errorf("%s: %d names, %v, want %v", of, len(stats.Used), err, want)
		}
	}
	stats, err := evaluators["pods"].UsageStats(quota.UsageStatsOptions{
		Namespace: "default", Resources: []corev1.ResourceName{corev1.ResourcePods}, Scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeBestEffort},
	})
	if n := stats.Used[corev1.ResourcePods]; err != nil || !n.IsZero() {
		t.Errorf("pods without requests: %v, %v", stats.Used, err)
	}
}

// L3: 100 quotas count all objects of their namespace whenever one is deleted.
func TestHostileQuotasAreNotAllOfAControllersTime(t *testing.T) {
	evaluators := evaluatorsOf(t, slowQuotaPace(t), 1)
	for _, of := range []string{"pods", "configmaps"} {
		options := quota.UsageStatsOptions{Namespace: "default", Resources: []corev1.ResourceName{corev1.ResourceName(of)}}
		var err error
		for i := 0; err == nil && i < 3; i++ {
			_, err = evaluators[of].UsageStats(options)
		}
		if err == nil || !strings.Contains(err.Error(), "rate") {
			t.Errorf("%s, counted again: %v", of, err)
		}
	}
}

// quotaStep is what each look at a slowQuota takes.
const quotaStep = 2 * time.Second

type slowQuota struct{ *clocktesting.FakeClock }

func (s slowQuota) Now() time.Time {
	defer s.Step(quotaStep)
	return s.FakeClock.Now()
}

// slowQuotaPace is of a controller that runs for half as long as the second list would wait.
func slowQuotaPace(t *testing.T) *views.Pace {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), quotaStep)
	t.Cleanup(cancel)
	return views.NewPace(ctx, slowQuota{clocktesting.NewFakeClock(time.Now())}, views.NewShare(bounds.NewAccount(nil)))
}

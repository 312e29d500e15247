// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/kubernetes/pkg/controller/endpoint"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/vcluster"
)

// startRestless starts a space whose controllers stop soon when they have nothing to
// do, and waits until none runs.
func startRestless(t *testing.T, name string) (*vcluster.ControlPlane, *kubernetes.Clientset) {
	t.Helper()
	c := config(t, name)
	c.HiddenNodes = true
	c.ControllersQuiet = 50 * time.Millisecond
	p := start(t, c)
	atRest(t, p)
	return p, clientset(t, p.Loopback())
}

// atRest waits until no controller runs.
func atRest(t *testing.T, p *vcluster.ControlPlane) {
	t.Helper()
	eventually(t, func() error {
		if running := p.RunningControllers(); len(running) > 0 {
			return fmt.Errorf("these run: %v", running)
		}
		return nil
	})
}

// T7, S8: nothing runs in an idle space, and a tenant can't tell.
func TestAnIdleSpaceIsFurnishedAndRunsNoController(t *testing.T) {
	p, client := startRestless(t, "idle")
	for _, namespace := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		if _, err := client.CoreV1().ServiceAccounts(namespace).Get(t.Context(), "default", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
		if _, err := client.CoreV1().ConfigMaps(namespace).Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
	if err := checkAggregation(t.Context(), client); err != nil {
		t.Error(err)
	}

	// What is taken away comes back.
	old, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "kube-root-ca.crt", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := client.CoreV1().ConfigMaps("default").Delete(t.Context(), old.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := client.CoreV1().ServiceAccounts("default").Delete(t.Context(), "default", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		_, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), old.Name, metav1.GetOptions{})
		return err
	})
	account(t, p, "default", "default")
	atRest(t, p)
}

// S8: what a tenant wrote by hand stays while the controller comes and goes, and what
// the controller left behind does not.
func TestEndpointsWithoutAServiceStay(t *testing.T) {
	p, client := startRestless(t, "endpoints")
	endpoints, services := client.CoreV1().Endpoints("default"), client.CoreV1().Services("default")
	for name, made := range map[string]map[string]string{"by-hand": nil, "left": {endpoint.LabelManagedBy: endpoint.ControllerName}} {
		_, err := endpoints.Create(t.Context(), &corev1.Endpoints{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: made}}, metav1.CreateOptions{}) //nolint:staticcheck // tenants may still write them
		if err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() error {
		if _, err := endpoints.Get(t.Context(), "left", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the endpoints that the controller left: %w", errors.Join(err, errors.New("want them gone")))
		}
		return nil
	})
	service := &corev1.Service{ObjectMeta: meta("by-selector"), Spec: corev1.ServiceSpec{
		Selector: map[string]string{"app": "none"}, Ports: []corev1.ServicePort{{Port: 80}},
	}}
	if _, err := services.Create(t.Context(), service, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		_, err := endpoints.Get(t.Context(), service.Name, metav1.GetOptions{})
		return err
	})
	if err := services.Delete(t.Context(), service.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if running := p.RunningControllers(); slices.Contains(running, names.EndpointsController) {
			return fmt.Errorf("these run: %v", running)
		}
		return nil
	})
	if _, err := endpoints.Get(t.Context(), "by-hand", metav1.GetOptions{}); err != nil {
		t.Errorf("endpoints that a tenant wrote: %v", err)
	}
	if _, err := endpoints.Get(t.Context(), service.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("endpoints of a service that has gone: %v", err)
	}
}

// S8
func TestControllersComeWithTheirObjectsAndGoWithThem(t *testing.T) {
	p, client := startRestless(t, "come-and-go")
	for reason, propagation := range map[string]metav1.DeletionPropagation{
		"the pods go after":  metav1.DeletePropagationBackground,
		"the pods go before": metav1.DeletePropagationForeground,
	} {
		if err := deploy(t.Context(), client, "app"); err != nil {
			t.Fatal(err)
		}
		for _, name := range []string{names.DeploymentController, names.ReplicaSetController, names.GarbageCollectorController} {
			eventually(t, func() error {
				if running := p.RunningControllers(); !slices.Contains(running, name) {
					return fmt.Errorf("%s does not run: %v", name, running)
				}
				return nil
			})
		}
		err := client.AppsV1().Deployments("default").Delete(t.Context(), "app", metav1.DeleteOptions{PropagationPolicy: &propagation})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := podsOf(t.Context(), client, "app", 0); err != nil {
			t.Errorf("%s: %v", reason, err)
		}
		atRest(t, p)
	}
}

// S8: the collector does not run when the owner is deleted, and still orphans.
func TestOrphansStay(t *testing.T) {
	p, client := startRestless(t, "orphans")
	owner, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: meta("owner")}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if slices.Contains(p.RunningControllers(), names.GarbageCollectorController) {
		t.Error("the collector runs though nothing has an owner")
	}
	owned := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "owned", OwnerReferences: []metav1.OwnerReference{
		{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID}}}}
	if _, err := client.CoreV1().Secrets("default").Create(t.Context(), owned, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	err = client.CoreV1().ConfigMaps("default").Delete(t.Context(), "owner", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationOrphan)})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		s, err := client.CoreV1().Secrets("default").Get(t.Context(), "owned", metav1.GetOptions{})
		if err == nil && len(s.OwnerReferences) > 0 {
			err = errors.New("it still has its owner")
		}
		return err
	})
	atRest(t, p)

	// Nothing runs, and there is nothing to orphan: the finalizer must go.
	if _, err := client.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: meta("owner")}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	err = client.CoreV1().ConfigMaps("default").Delete(t.Context(), "owner", metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationOrphan)})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		_, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "owner", metav1.GetOptions{})
		return gone(err)
	})
}

// S8
func TestNamespacesAreEmptiedAfterARest(t *testing.T) {
	p, client := startRestless(t, "namespaces")
	if _, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: meta("full")}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	account(t, p, "full", "default")
	if _, err := client.CoreV1().ConfigMaps("full").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: meta("content")}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	atRest(t, p)
	if err := client.CoreV1().Namespaces().Delete(t.Context(), "full", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		_, err := client.CoreV1().Namespaces().Get(t.Context(), "full", metav1.GetOptions{})
		return gone(err)
	})
	atRest(t, p)
}

// Q1
func TestQuotasHoldAfterARest(t *testing.T) {
	_, client := startRestless(t, "quotas")
	if err := makeQuota(t.Context(), client); err != nil {
		t.Fatal(err)
	}
	// What is freed may be used again: the controller counts anew.
	list, err := client.CoreV1().ConfigMaps("quota").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, cm := range list.Items {
		err := client.CoreV1().ConfigMaps("quota").Delete(t.Context(), cm.Name, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
	eventually(t, func() error {
		_, err := client.CoreV1().ConfigMaps("quota").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "again-"}}, metav1.CreateOptions{})
		return err
	})
}

// T8: a space that starts with objects runs the controllers that they need.
func TestARestartFindsWorkThatWasLeft(t *testing.T) {
	c := config(t, "left")
	c.HiddenNodes = true
	p := start(t, c)
	account(t, p, "default", "default")
	if err := deploy(t.Context(), clientset(t, p.Loopback()), "app"); err != nil {
		t.Fatal(err)
	}
	stop(t, p)

	c.Controllers = nil
	p = start(t, c)
	client := clientset(t, p.Loopback())
	if err := client.AppsV1().Deployments("default").Delete(t.Context(), "app", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, err := podsOf(t.Context(), client, "app", 1); err != nil {
		t.Fatal(err)
	}
	stop(t, p)

	c.Controllers = vcluster.SpaceControllers()
	p = start(t, c)
	if _, err := podsOf(t.Context(), clientset(t, p.Loopback()), "app", 0); err != nil {
		t.Error(err)
	}
}

// deploy makes a deployment of one pod and waits for the pod.
func deploy(ctx context.Context, client kubernetes.Interface, name string) error {
	_, err := client.AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{
		ObjectMeta: meta(name), Spec: appsv1.DeploymentSpec{Selector: selector(name), Template: template(name)},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = podsOf(ctx, client, name, 1)
	return err
}

// S8: what admission puts finalizers on can be deleted, here a class that a
// tenant made for nothing.
func TestAVolumeAttributesClassCanBeDeleted(t *testing.T) {
	_, client := startRestless(t, "attributes")
	classes := client.StorageV1().VolumeAttributesClasses()
	class, err := classes.Create(t.Context(), &storagev1.VolumeAttributesClass{
		ObjectMeta: metav1.ObjectMeta{Name: "fast"}, DriverName: "driver.example.com", Parameters: map[string]string{"iops": "1"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := classes.Delete(t.Context(), class.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if _, err := classes.Get(t.Context(), class.Name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("the class is there: %w", err)
		}
		return nil
	})
}

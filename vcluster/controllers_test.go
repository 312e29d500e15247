// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// S8: each controller of a space does its work though the space has no nodes.
// The pods' status is written here, as the syncer does.
func TestControllersWorkWithoutNodes(t *testing.T) {
	c := config(t, "controllers")
	c.HiddenNodes = true
	p := start(t, c)
	client := clientset(t, p.Loopback())
	account(t, p, "default", "default") // pods are refused before it exists
	for name, test := range map[string]func(context.Context, kubernetes.Interface) error{
		"statefulset":                 makeStatefulSet,
		"job and its time to live":    makeJob,
		"replication controller":      makeReplicationController,
		"service, endpoints, slices":  makeService,
		"disruption budget":           makeBudget,
		"quota":                       makeQuota,
		"horizontal pod autoscaler":   makeAutoscaler,
		"aggregated cluster role":     checkAggregation,
		"claims can be deleted":       makeClaim,
		"volumes can be deleted":      makeVolume,
		"a cron job is taken in hand": makeCronJob,
		"types of a policy":           checkPolicy,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if err := test(t.Context(), client); err != nil {
				t.Error(err)
			}
		})
	}
}

var (
	container = corev1.Container{Name: "c", Image: "i", Resources: corev1.ResourceRequirements{
		Requests: corev1.ResourceList{corev1.ResourceCPU: quantity("1m")}}}
	storage = corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: quantity("1Gi")}}
)

func template(app string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{container}},
	}
}

func selector(app string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}}
}

func meta(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Name: name} }

// run writes the status of a pod that runs on a node the space does not have.
func run(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod, ip string, phase corev1.PodPhase) error {
	err := client.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: "hidden"},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if pod, err = client.CoreV1().Pods(pod.Namespace).Get(ctx, pod.Name, metav1.GetOptions{}); err != nil {
		return err
	}
	pod.ResourceVersion = "" // whatever others write meanwhile
	pod.Status = corev1.PodStatus{
		Phase: phase, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}},
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}},
	}
	_, err = client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
	return err
}

// podsOf waits for n pods of app.
func podsOf(ctx context.Context, client kubernetes.Interface, app string, n int) (pods []corev1.Pod, err error) {
	return pods, until(ctx, func() error {
		list, err := client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{LabelSelector: "app=" + app})
		if err != nil {
			return err
		}
		if pods = list.Items; len(pods) != n {
			return fmt.Errorf("%d pods of %s, want %d", len(pods), app, n)
		}
		return nil
	})
}

func makeStatefulSet(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.AppsV1().StatefulSets("default").Create(ctx, &appsv1.StatefulSet{
		ObjectMeta: meta("db"),
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr.To[int32](2), Selector: selector("db"), Template: template("db"),
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: meta("data"),
				Spec:       corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Resources: storage},
			}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	pods, err := podsOf(ctx, client, "db", 1)
	if err != nil {
		return err
	}
	if _, err := client.CoreV1().PersistentVolumeClaims("default").Get(ctx, "data-db-0", metav1.GetOptions{}); err != nil {
		return err
	}
	if err := run(ctx, client, &pods[0], "10.1.0.1", corev1.PodRunning); err != nil {
		return err
	}
	_, err = podsOf(ctx, client, "db", 2) // the second follows the first
	return err
}

func makeJob(ctx context.Context, client kubernetes.Interface) error {
	spec := template("job")
	spec.Spec.RestartPolicy = corev1.RestartPolicyNever
	_, err := client.BatchV1().Jobs("default").Create(ctx, &batchv1.Job{
		ObjectMeta: meta("job"), Spec: batchv1.JobSpec{Template: spec, TTLSecondsAfterFinished: ptr.To[int32](0)},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	pods, err := podsOf(ctx, client, "job", 1)
	if err != nil {
		return err
	}
	if err := run(ctx, client, &pods[0], "10.1.0.2", corev1.PodSucceeded); err != nil {
		return err
	}
	return until(ctx, func() error {
		job, err := client.BatchV1().Jobs("default").Get(ctx, "job", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is still there: %+v, %w", job.Status, err)
	})
}

func makeReplicationController(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.CoreV1().ReplicationControllers("default").Create(ctx, &corev1.ReplicationController{
		ObjectMeta: meta("old"),
		Spec: corev1.ReplicationControllerSpec{
			Replicas: ptr.To[int32](2), Selector: map[string]string{"app": "old"}, Template: ptr.To(template("old")),
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = podsOf(ctx, client, "old", 2)
	return err
}

func makeService(ctx context.Context, client kubernetes.Interface) error {
	service, err := client.CoreV1().Services("default").Create(ctx, &corev1.Service{
		ObjectMeta: meta("served"),
		Spec:       corev1.ServiceSpec{Selector: map[string]string{"app": "served"}, Ports: []corev1.ServicePort{{Port: 80}}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if net.ParseIP(service.Spec.ClusterIP) == nil {
		return fmt.Errorf("cluster IP %q", service.Spec.ClusterIP)
	}
	spec := template("served")
	pod, err := client.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "served", Labels: spec.Labels}, Spec: spec.Spec,
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if err := run(ctx, client, pod, "10.1.0.3", corev1.PodRunning); err != nil {
		return err
	}
	return until(ctx, func() error {
		slices, err := client.DiscoveryV1().EndpointSlices("default").List(ctx, metav1.ListOptions{LabelSelector: "kubernetes.io/service-name=served"})
		if err != nil {
			return err
		}
		for _, s := range slices.Items {
			for _, e := range s.Endpoints {
				if len(e.Addresses) == 1 && e.Addresses[0] == "10.1.0.3" {
					return nil
				}
			}
		}
		return fmt.Errorf("no endpoint in %v", slices.Items)
	})
}

func makeBudget(ctx context.Context, client kubernetes.Interface) error {
	spec := template("budget")
	pod, err := client.CoreV1().Pods("default").Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "budget", Labels: spec.Labels}, Spec: spec.Spec,
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if err := run(ctx, client, pod, "10.1.0.4", corev1.PodRunning); err != nil {
		return err
	}
	_, err = client.PolicyV1().PodDisruptionBudgets("default").Create(ctx, &policyv1.PodDisruptionBudget{
		ObjectMeta: meta("budget"),
		Spec:       policyv1.PodDisruptionBudgetSpec{MinAvailable: ptr.To(intstr.FromInt32(1)), Selector: selector("budget")},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return until(ctx, func() error {
		b, err := client.PolicyV1().PodDisruptionBudgets("default").Get(ctx, "budget", metav1.GetOptions{})
		if err == nil && b.Status.CurrentHealthy != 1 {
			err = fmt.Errorf("status %+v", b.Status)
		}
		return err
	})
}

func makeQuota(ctx context.Context, client kubernetes.Interface) error {
	if _, err := client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: meta("quota")}, metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := client.CoreV1().ResourceQuotas("quota").Create(ctx, &corev1.ResourceQuota{
		ObjectMeta: meta("quota"),
		Spec:       corev1.ResourceQuotaSpec{Hard: corev1.ResourceList{corev1.ResourceConfigMaps: quantity("2")}},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return until(ctx, func() error {
		_, err := client.CoreV1().ConfigMaps("quota").Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "c-"}}, metav1.CreateOptions{})
		if apierrors.IsForbidden(err) {
			return nil
		}
		return fmt.Errorf("one more was let through: %w", err)
	})
}

func makeAutoscaler(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{
		ObjectMeta: meta("scaled"), Spec: appsv1.DeploymentSpec{Selector: selector("scaled"), Template: template("scaled")},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	_, err = client.AutoscalingV2().HorizontalPodAutoscalers("default").Create(ctx, &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: meta("scaled"),
		Spec: autoscalingv2.HorizontalPodAutoscalerSpec{
			ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{APIVersion: "apps/v1", Kind: "Deployment", Name: "scaled"},
			MinReplicas:    ptr.To[int32](2), MaxReplicas: 4,
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	return until(ctx, func() error {
		d, err := client.AppsV1().Deployments("default").Get(ctx, "scaled", metav1.GetOptions{})
		if err == nil && *d.Spec.Replicas != 2 {
			err = errors.New("it is not scaled to the least number")
		}
		return err
	})
}

func checkAggregation(ctx context.Context, client kubernetes.Interface) error {
	return until(ctx, func() error {
		role, err := client.RbacV1().ClusterRoles().Get(ctx, "view", metav1.GetOptions{})
		if err == nil && len(role.Rules) == 0 {
			err = errEmpty
		}
		return err
	})
}

func checkPolicy(ctx context.Context, client kubernetes.Interface) error {
	policies := client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	rule := admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Create},
		Rule:       admissionv1.Rule{APIGroups: []string{"apps"}, APIVersions: []string{"v1"}, Resources: []string{"deployments"}},
	}
	if _, err := policies.Create(ctx, &admissionv1.ValidatingAdmissionPolicy{ObjectMeta: meta("checked"), Spec: admissionv1.ValidatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: rule}}},
		Validations:      []admissionv1.Validation{{Expression: "object.spec.replicas == 'many'"}},
	}}, metav1.CreateOptions{}); err != nil {
		return err
	}
	return until(ctx, func() error {
		policy, err := policies.Get(ctx, "checked", metav1.GetOptions{})
		if err == nil && (policy.Status.TypeChecking == nil || len(policy.Status.TypeChecking.ExpressionWarnings) == 0) {
			err = fmt.Errorf("no warnings of a wrong type: %+v", policy.Status)
		}
		return err
	})
}

func makeClaim(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.CoreV1().PersistentVolumeClaims("default").Create(ctx, &corev1.PersistentVolumeClaim{
		ObjectMeta: meta("claim"),
		Spec:       corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Resources: storage},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if err := client.CoreV1().PersistentVolumeClaims("default").Delete(ctx, "claim", metav1.DeleteOptions{}); err != nil {
		return err
	}
	return until(ctx, func() error {
		_, err := client.CoreV1().PersistentVolumeClaims("default").Get(ctx, "claim", metav1.GetOptions{})
		return gone(err)
	})
}

func makeVolume(ctx context.Context, client kubernetes.Interface) error {
	_, err := client.CoreV1().PersistentVolumes().Create(ctx, &corev1.PersistentVolume{
		ObjectMeta: meta("volume"),
		Spec: corev1.PersistentVolumeSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, Capacity: storage.Requests,
			PersistentVolumeSource: corev1.PersistentVolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/x"}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	if err := client.CoreV1().PersistentVolumes().Delete(ctx, "volume", metav1.DeleteOptions{}); err != nil {
		return err
	}
	return until(ctx, func() error {
		_, err := client.CoreV1().PersistentVolumes().Get(ctx, "volume", metav1.GetOptions{})
		return gone(err)
	})
}

// A missed start time is made up for at once, so the test need not wait for one.
func makeCronJob(ctx context.Context, client kubernetes.Interface) error {
	spec := template("cron")
	spec.Spec.RestartPolicy = corev1.RestartPolicyNever
	cron, err := client.BatchV1().CronJobs("default").Create(ctx, &batchv1.CronJob{
		ObjectMeta: meta("cron"),
		Spec: batchv1.CronJobSpec{
			Schedule:    "* * * * *",
			JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Template: spec}},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	cron.ResourceVersion = "" // whatever others write meanwhile
	cron.Status.LastScheduleTime = ptr.To(metav1.NewTime(cron.CreationTimestamp.Add(-2 * time.Minute)))
	if _, err := client.BatchV1().CronJobs("default").UpdateStatus(ctx, cron, metav1.UpdateOptions{}); err != nil {
		return err
	}
	_, err = podsOf(ctx, client, "cron", 1)
	return err
}

func gone(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return fmt.Errorf("it is still there: %w", err)
}

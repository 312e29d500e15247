// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

// scenario is what a tenant does in a while, in namespaces of its own: each
// step is repeated until it succeeds, as a patient user would.
type scenario struct {
	app, other string
	client     kubernetes.Interface
}

// scenarioPods is how many pods a scenario makes in all: three and one in place
// of a deleted one, that of the set, and the bare one.
const scenarioPods = 6

type step struct {
	name string
	do   func(context.Context) error
}

func newScenario(client kubernetes.Interface, suffix string) *scenario {
	return &scenario{app: "app" + suffix, other: "other" + suffix, client: client}
}

// build makes all there is.
func (s *scenario) build() []step {
	app, other := s.client.CoreV1(), s.client.CoreV1()
	return []step{
		{"make namespace", s.namespace(s.app)},
		{"make the other namespace", s.namespace(s.other)},
		{"make config map", made(app.ConfigMaps(s.app).Create, newConfigMap("config"))},
		{"make a config map that nobody uses", made(app.ConfigMaps(s.app).Create, newConfigMap("unused"))},
		{"make secret", made(app.Secrets(s.app).Create, newSecret("credentials"))},
		{"make service", made(app.Services(s.app).Create, newService("web", ""))},
		{"make headless service", made(app.Services(s.app).Create, newService("db", corev1.ClusterIPNone))},
		{"make deployment", made(s.client.AppsV1().Deployments(s.app).Create, newDeployment("web", 3))},
		{"make stateful set", made(s.client.AppsV1().StatefulSets(s.app).Create, newStatefulSet("db"))},
		{"make config map in the other namespace", made(other.ConfigMaps(s.other).Create, newConfigMap("config"))},
		{"make secret in the other namespace", made(other.Secrets(s.other).Create, newSecret("credentials"))},
		{"make service in the other namespace", made(other.Services(s.other).Create, newService("web", ""))},
		{"make claim in the other namespace", made(other.PersistentVolumeClaims(s.other).Create, newClaim("data"))},
		{"make pod in the other namespace", made(other.Pods(s.other).Create, newPod("bare", "data"))},
	}
}

// change holds back each step until the one before has come to rest.
func (s *scenario) change(rest step) []step {
	var victim *corev1.Pod
	return []step{
		rest,
		{"delete the other namespace", s.deleteNamespace(s.other)},
		{"scale to 1", func(ctx context.Context) error {
			patch := []byte(`{"spec":{"replicas":1}}`)
			_, err := s.client.AppsV1().Deployments(s.app).Patch(ctx, "web", types.MergePatchType, patch, metav1.PatchOptions{})
			return err
		}},
		{"see one pod", func(ctx context.Context) (err error) {
			victim, err = s.onlyPod(ctx)
			return err
		}},
		{"delete the pod", func(ctx context.Context) error {
			err := s.client.CoreV1().Pods(s.app).Delete(ctx, victim.Name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &victim.UID}})
			return ignoreNotFound(err)
		}},
		{"see another pod", func(ctx context.Context) error {
			pod, err := s.onlyPod(ctx)
			if err == nil && pod.UID == victim.UID {
				return fmt.Errorf("pod %s is still there", pod.Name)
			}
			return err
		}},
		{"delete service", func(ctx context.Context) error {
			return ignoreNotFound(s.client.CoreV1().Services(s.app).Delete(ctx, "web", metav1.DeleteOptions{}))
		}},
		{"make service again", made(s.client.CoreV1().Services(s.app).Create, newService("web", ""))},
		{"delete stateful set", func(ctx context.Context) error {
			return ignoreNotFound(s.client.AppsV1().StatefulSets(s.app).Delete(ctx, "db", metav1.DeleteOptions{}))
		}},
		{"delete its claim", func(ctx context.Context) error {
			return ignoreNotFound(s.client.CoreV1().PersistentVolumeClaims(s.app).Delete(ctx, "data-db-0", metav1.DeleteOptions{}))
		}},
		{"see its claim gone", func(ctx context.Context) error {
			return gone(s.client.CoreV1().PersistentVolumeClaims(s.app).Get(ctx, "data-db-0", metav1.GetOptions{}))
		}},
		{"see the other namespace gone", s.namespaceGone(s.other)},
		rest,
	}
}

// clean takes away what is left.
func (s *scenario) clean(rest step) []step {
	return []step{{"delete namespace", s.deleteNamespace(s.app)}, {"see it gone", s.namespaceGone(s.app)}, rest}
}

func (s *scenario) onlyPod(ctx context.Context) (*corev1.Pod, error) {
	pods, err := s.client.CoreV1().Pods(s.app).List(ctx, metav1.ListOptions{LabelSelector: "app=web"})
	if err != nil {
		return nil, err
	}
	if len(pods.Items) != 1 || pods.Items[0].Status.Phase != corev1.PodRunning || pods.Items[0].DeletionTimestamp != nil {
		var found []string
		for _, p := range pods.Items {
			found = append(found, fmt.Sprintf("%s is %s, ending %v: %v", p.Name, p.Status.Phase, p.DeletionTimestamp, p.Status.Conditions))
		}
		return nil, fmt.Errorf("want one pod that runs: %v", found)
	}
	return &pods.Items[0], nil
}

func (s *scenario) namespace(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
		if _, err := s.client.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		_, err := s.client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err
	}
}

func (s *scenario) deleteNamespace(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		return ignoreNotFound(s.client.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}))
	}
}

func (s *scenario) namespaceGone(name string) func(context.Context) error {
	return func(ctx context.Context) error {
		return gone(s.client.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{}))
	}
}

func gone[T metav1.Object](o T, err error) error {
	if err == nil {
		return fmt.Errorf("%s is still there", o.GetName())
	}
	return ignoreNotFound(err)
}

// made creates o, or finds that an earlier try did.
func made[T any](create func(context.Context, T, metav1.CreateOptions) (T, error), o T) func(context.Context) error {
	return func(ctx context.Context) error {
		if _, err := create(ctx, o, metav1.CreateOptions{}); !apierrors.IsAlreadyExists(err) {
			return err
		}
		return nil
	}
}

func ignoreNotFound(err error) error {
	if apierrors.IsNotFound(err) {
		return nil
	}
	return err
}

func noGrace() *metav1.DeleteOptions {
	return &metav1.DeleteOptions{GracePeriodSeconds: ptr.To[int64](0)}
}

func newConfigMap(name string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"key": "value of " + name}}
}

func newSecret(name string) *corev1.Secret {
	return &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string][]byte{"PASSWORD": []byte("secret")}}
}

func newService(name, clusterIP string) *corev1.Service {
	return &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.ServiceSpec{
			ClusterIP: clusterIP, Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Name: "http", Port: 80}},
		},
	}
}

// newPodSpec uses a config map, a secret and (as admission adds it) a token, and
// mounts the named claims.
func newPodSpec(claims ...string) corev1.PodSpec {
	spec := corev1.PodSpec{
		TerminationGracePeriodSeconds: ptr.To[int64](1),
		Containers: []corev1.Container{{
			Name: "main", Image: "nginx",
			EnvFrom:      []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "credentials"}}}},
			VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/config"}},
		}},
		Volumes: []corev1.Volume{{Name: "config", VolumeSource: corev1.VolumeSource{
			ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "config"}},
		}}},
	}
	for _, name := range claims {
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name},
		}})
	}
	return spec
}

func newPod(name string, claims ...string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"app": name}}, Spec: newPodSpec(claims...)}
}

func newDeployment(name string, replicas int32) *appsv1.Deployment {
	labels := map[string]string{"app": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: &replicas, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: newPodSpec()},
		},
	}
}

// newStatefulSet has one pod with one claim.
func newStatefulSet(name string) *appsv1.StatefulSet {
	labels := map[string]string{"app": name}
	spec := newPodSpec()
	spec.Containers[0].VolumeMounts = append(spec.Containers[0].VolumeMounts, corev1.VolumeMount{Name: "data", MountPath: "/data"})
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{
			ServiceName: name, Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template:             corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{*newClaim("data")},
		},
	}
}

func newClaim(name string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
}

func ignoreConflict(err error) error {
	if apierrors.IsConflict(err) {
		return nil
	}
	return err
}

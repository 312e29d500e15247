// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"context"
	"errors"
	"maps"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/platform/pod"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// twoReleases is a host with two releases of the chart: berth in the namespace platform, and one with another platform's
// name in the namespace second.
type twoReleases struct {
	admin client.Client
	// berth and other have exactly the rights that the chart grants the accounts of the releases.
	berth, other client.WithWatch
	// as is a client of a user.
	as     func(user string) client.WithWatch
	config *rest.Config
}

// with are the options by which a platform isolates its spaces in a release in a namespace.
func with(namespace string, syncOptions resources.SyncOptions) []isolation.Option {
	return []isolation.Option{
		isolation.BoundTo(namespace + "-berth-space"), isolation.Syncing(syncOptions), isolation.ImpersonatedBy("system:serviceaccount:" + namespace + ":berth"),
		isolation.ScopedBy(map[string]corev1.ResourceQuotaSpec{"batch": {Scopes: []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeTerminating}}}),
	}
}

// exported has tenants make priority classes of their own.
const exported = "ownpriorityclasses=5"

func startReleases(t *testing.T) *twoReleases {
	t.Helper()
	if _, problems, err := helm(t, "version"); err != nil { // which builds it the first time, for minutes
		t.Fatalf("helm version: %v\n%s", err, problems)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cluster, err := testhost.Start()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Close(); err != nil {
			t.Error(err)
		}
	})
	known := runtime.NewScheme()
	if err := errors.Join(scheme.AddToScheme(known), apiextensionsv1.AddToScheme(known), v1alpha1.AddToScheme(known)); err != nil {
		t.Fatal(err)
	}
	as := func(user string) client.WithWatch {
		config := rest.CopyConfig(cluster.Config())
		config.ContentType, config.AcceptContentTypes = runtime.ContentTypeJSON, "" // a Space has no other
		config.Impersonate.UserName = user
		c, err := client.NewWithWatch(config, client.Options{Scheme: known})
		if err != nil {
			t.Fatal(err)
		}
		return c
	}
	r := &twoReleases{
		admin: as(""), berth: as("system:serviceaccount:platform:berth"), other: as("system:serviceaccount:second:berth"), as: as, config: cluster.Config(),
	}
	// The policies that `berth up` would install: here, the chart's are tested.
	for _, o := range []client.Object{&admissionv1.ValidatingAdmissionPolicyBinding{}, &admissionv1.ValidatingAdmissionPolicy{}} {
		if err := r.admin.DeleteAllOf(ctx, o, client.MatchingLabels{translate.LabelManagedBy: translate.ManagedBy}); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "argocd"}}); err != nil {
		t.Fatal(err)
	}
	for namespace, values := range map[string][]string{
		"platform": {"sync." + exported, "argocdNamespace=argocd"}, "second": {"sync." + exported, "argocdNamespace=argocd", "platformName=other", "crds.enabled=false", "operator.enabled=false"},
	} {
		if err := r.admin.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}); err != nil {
			t.Fatal(err)
		}
		for _, o := range renderIn(t, namespace, values...) {
			switch o := o.(type) {
			case *corev1.ServiceAccount, *rbacv1.ClusterRole, *rbacv1.ClusterRoleBinding, *rbacv1.Role, *rbacv1.RoleBinding,
				*admissionv1.ValidatingAdmissionPolicy, *admissionv1.ValidatingAdmissionPolicyBinding, *apiextensionsv1.CustomResourceDefinition:
				if err := r.admin.Create(ctx, o.(client.Object)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for _, probe := range []struct {
		account client.Client
		is      string
	}{{r.berth, "berth"}, {r.other, "other"}} {
		r.eventually(t, "the host does not hold the account of "+probe.is+" to the policy", func(ctx context.Context) bool {
			err := probe.account.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "probe"}}, client.DryRunAll)
			return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "of the platform "+probe.is)
		})
	}
	r.eventually(t, "the host does not serve spaces", func(ctx context.Context) bool {
		return r.berth.List(ctx, &v1alpha1.SpaceList{}) == nil
	})
	return r
}

func (r *twoReleases) eventually(t *testing.T, otherwise string, done func(context.Context) bool) {
	t.Helper()
	if err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		return done(ctx), nil
	}); err != nil {
		t.Fatal(otherwise)
	}
}

// apply writes an object as Berth does.
func apply(ctx context.Context, c client.Client, o client.Object) error {
	//nolint:staticcheck // as isolation.Apply does
	return c.Patch(ctx, o, client.Apply, client.FieldOwner("berth"), client.ForceOwnership)
}

func typed(apiVersion, kind string) metav1.TypeMeta {
	return metav1.TypeMeta{APIVersion: apiVersion, Kind: kind}
}

func namespace(name string, labels map[string]string) *corev1.Namespace {
	return &corev1.Namespace{TypeMeta: typed("v1", "Namespace"), ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}}
}

// labelsOf are those of the host namespace of a space.
func labelsOf(space, platform string) map[string]string {
	labels := map[string]string{"pod-security.kubernetes.io/enforce": "baseline", "pod-security.kubernetes.io/enforce-version": "latest"}
	if space != "" {
		labels[translate.LabelSpace] = space
	}
	if platform != "" {
		labels[translate.LabelPlatform] = platform
	}
	return labels
}

func kubeconfigSecret(name, space, platform string, kind corev1.SecretType) *corev1.Secret {
	return &corev1.Secret{
		TypeMeta: typed("v1", "Secret"), Type: kind, Data: map[string][]byte{"kubeconfig": []byte("a")},
		ObjectMeta: metav1.ObjectMeta{Namespace: "platform", Name: name, Labels: map[string]string{"berth.dev/kubeconfig": space, translate.LabelPlatform: platform}},
	}
}

// classBinding gives the account of a space rights on classes, if subject is "berth-" and its name.
func classBinding(name, space, role string, subjects ...string) *rbacv1.ClusterRoleBinding {
	binding := &rbacv1.ClusterRoleBinding{
		TypeMeta:   typed("rbac.authorization.k8s.io/v1", "ClusterRoleBinding"),
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labelsOf(space, "berth")}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
	}
	for _, s := range subjects {
		binding.Subjects = append(binding.Subjects, rbacv1.Subject{Kind: rbacv1.ServiceAccountKind, Name: syncer.ServiceAccount, Namespace: s})
	}
	return binding
}

// podOf is a StatefulSet of the pod of a dedicated space, as Berth makes it, and then changed.
func podOf(change func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	labels := map[string]string{pod.Label: "mine", translate.LabelPlatform: "berth"}
	set := &appsv1.StatefulSet{
		TypeMeta: typed("apps/v1", "StatefulSet"), ObjectMeta: metav1.ObjectMeta{Namespace: "platform", Name: "berth-mine", Labels: maps.Clone(labels)},
		Spec: appsv1.StatefulSetSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				AutomountServiceAccountToken: ptr.To(false), SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true)},
				Containers: []corev1.Container{{
					Name: "berth", Image: "berth:dev", Args: []string{"dedicated"},
					SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
				}},
				Volumes: []corev1.Volume{
					{Name: "configuration", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: "berth-mine"}}},
					{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: ptr.To(resource.MustParse("64Mi"))}}},
				},
			}},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}, Spec: corev1.PersistentVolumeClaimSpec{
				AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
				Resources:   corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
			}}},
		},
	}
	change(set)
	return set
}

// serviceOf is the Service of the pod of a dedicated space, with this selector.
func serviceOf(selector map[string]string) *corev1.Service {
	return &corev1.Service{
		TypeMeta:   typed("v1", "Service"),
		ObjectMeta: metav1.ObjectMeta{Namespace: "platform", Name: "berth-mine", Labels: map[string]string{pod.Label: "mine", translate.LabelPlatform: "berth"}},
		Spec:       corev1.ServiceSpec{Selector: selector, Ports: []corev1.ServicePort{{Port: 7445}}},
	}
}

// quantities are of one resource.
func quantities(name corev1.ResourceName, quantity string) map[corev1.ResourceName]resource.Quantity {
	return map[corev1.ResourceName]resource.Quantity{name: resource.MustParse(quantity)}
}

const kubeconfigType corev1.SecretType = "berth.dev/kubeconfig"

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"strings"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
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

// TestMain keeps the logs of hosts out of the tests' output.
func TestMain(m *testing.M) {
	os.Exit(testhost.Main(m, func() (io.Closer, error) { return io.NopCloser(nil), nil }))
}

// twoReleases is a host with two releases of the chart: berth in the namespace platform, and one with another platform's
// name in the namespace second.
type twoReleases struct {
	admin client.Client
	// berth and other have exactly the rights that the chart grants the accounts of the releases.
	berth, other client.WithWatch
	config       *rest.Config
}

// with are the options by which a platform isolates its spaces in a release in a namespace.
func with(namespace string, syncOptions resources.SyncOptions) []isolation.Option {
	return []isolation.Option{
		isolation.BoundTo(namespace + "-berth-space"), isolation.Syncing(syncOptions), isolation.ImpersonatedBy("system:serviceaccount:" + namespace + ":berth"),
	}
}

// exported has tenants make priority classes of their own.
const exported = "ownpriorityclasses=5"

func startReleases(t *testing.T) *twoReleases {
	t.Helper()
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
		admin: as(""), berth: as("system:serviceaccount:platform:berth"), other: as("system:serviceaccount:second:berth"), config: cluster.Config(),
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
		"platform": {"sync." + exported, "argocdNamespace=argocd"}, "second": {"sync." + exported, "argocdNamespace=argocd", "platformName=other", "crds.enabled=false"},
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

const kubeconfigType corev1.SecretType = "berth.dev/kubeconfig"

// M4, T7: spaces are created, isolated, repaired, and deleted under the rights of the chart, whatever they are called and
// whenever that is.
func TestBerthsAccountIsolatesASpaceOfAnyName(t *testing.T) {
	r, ctx := startReleases(t), t.Context()
	syncOptions, err := resources.Parse([]string{exported})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a", "named-later", strings.Repeat("x", translate.MaxSpaceName)} {
		space := translate.Space{Name: name, Store: "s", Platform: "berth"}
		isolate := func() error { return isolation.Apply(ctx, r.berth, space, nil, with("platform", syncOptions)...) }
		if err := isolate(); err != nil {
			t.Fatal(err)
		}
		at := client.ObjectKey{Name: space.HostNamespace()}
		ns, binding := &corev1.Namespace{}, &rbacv1.ClusterRoleBinding{}
		if err := errors.Join(r.admin.Get(ctx, at, ns), r.admin.Get(ctx, at, binding)); err != nil {
			t.Fatal(err)
		}
		if ns.Labels[translate.LabelPlatform] != "berth" || binding.RoleRef.Name != "platform-berth-space-classes" || binding.OwnerReferences[0].UID != ns.UID {
			t.Errorf("the namespace has the labels %v, the binding is %v", ns.Labels, binding)
		}
		// The account of the space has its rights, in its namespace and on classes, and is held to what is its own.
		account, err := client.New(syncer.AsAccount(r.config, space), client.Options{Scheme: scheme.Scheme})
		if err != nil {
			t.Fatal(err)
		}
		if err := isolation.WaitEnforced(ctx, account, space); err != nil {
			t.Fatal(err)
		}
		own := priorityClass(name+".low", name)
		r.eventually(t, "the space's account may not make a class", func(ctx context.Context) bool { return account.Create(ctx, own.DeepCopy(), client.DryRunAll) == nil })
		if err := account.Create(ctx, priorityClass("b.low", "b"), client.DryRunAll); !apierrors.IsForbidden(err) {
			t.Errorf("a class of another space: %v", err)
		}

		// An admin's mistakes are repaired.
		ns.Labels["pod-security.kubernetes.io/enforce"] = "privileged"
		binding.Subjects = append(binding.Subjects, rbacv1.Subject{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: "eve"})
		if err := errors.Join(r.admin.Update(ctx, ns), r.admin.Update(ctx, binding)); err != nil {
			t.Fatal(err)
		}
		if err := isolate(); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(r.admin.Get(ctx, at, ns), r.admin.Get(ctx, at, binding)); err != nil {
			t.Fatal(err)
		}
		if level := ns.Labels["pod-security.kubernetes.io/enforce"]; level != "baseline" || len(binding.Subjects) != 1 {
			t.Errorf("the level is %q, and bound are %v", level, binding.Subjects)
		}
		// So is a binding to the role of a release that the space was of before.
		if err := r.admin.Delete(ctx, binding); err != nil {
			t.Fatal(err)
		}
		former := classBinding(binding.Name, name, "former-space-classes", space.HostNamespace())
		if err := r.admin.Create(ctx, former); err != nil {
			t.Fatal(err)
		}
		if err := errors.Join(isolate(), r.admin.Get(ctx, at, binding)); err != nil || binding.RoleRef.Name != "platform-berth-space-classes" {
			t.Errorf("the role is still %s (%v)", binding.RoleRef.Name, err)
		}

		// The process of a dedicated space reaches the host by a token of the account, and may watch until it is shared again.
		pods := func(ctx context.Context) error {
			return account.List(ctx, &corev1.PodList{}, client.InNamespace(space.HostNamespace()))
		}
		volumes := func(ctx context.Context) error { return account.List(ctx, &corev1.PersistentVolumeList{}) }
		dedicated := append(with("platform", syncOptions), isolation.Dedicated(syncOptions))
		if err := isolation.Apply(ctx, r.berth, space, nil, dedicated...); err != nil {
			t.Fatal(err)
		}
		r.eventually(t, "the account of a dedicated space may not watch", func(ctx context.Context) bool { return pods(ctx) == nil && volumes(ctx) == nil })
		if err := account.List(ctx, &corev1.PodList{}); !apierrors.IsForbidden(err) {
			t.Errorf("the account of a dedicated space lists pods of all namespaces: %v", err)
		}
		token := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Namespace: space.HostNamespace(), Name: syncer.ServiceAccount}}
		r.eventually(t, "there is no token of the account", func(ctx context.Context) bool {
			return r.berth.SubResource("token").Create(ctx, token, &authenticationv1.TokenRequest{}) == nil
		})
		token.Name = "default"
		if err := r.berth.SubResource("token").Create(ctx, token, &authenticationv1.TokenRequest{}); !apierrors.IsForbidden(err) {
			t.Errorf("a token of what the space's pods run as: %v", err)
		}
		shared := append(with("platform", syncOptions), isolation.Undedicated(syncOptions))
		if err := isolation.Apply(ctx, r.berth, space, nil, shared...); err != nil {
			t.Fatal(err)
		}
		r.eventually(t, "the account of a space that is shared again may watch", func(ctx context.Context) bool {
			return apierrors.IsForbidden(pods(ctx)) && apierrors.IsForbidden(volumes(ctx))
		})

		secret := kubeconfigSecret(name+"-kubeconfig", name, "berth", kubeconfigType)
		for range 2 {
			if err := apply(ctx, r.berth, secret.DeepCopy()); err != nil {
				t.Errorf("the Secret: %v", err)
			}
		}
		if err := r.berth.Delete(ctx, secret); err != nil {
			t.Errorf("delete the Secret: %v", err)
		}
		if _, err := isolation.Remove(ctx, r.berth, account, space); err != nil {
			t.Error(err)
		}
		if err := r.admin.Get(ctx, at, ns); err == nil && ns.DeletionTimestamp.IsZero() {
			t.Error("the namespace is not being deleted")
		}
	}
}

// M4: what RBAC grants for names that nobody knows yet, the policy holds to what is the platform's own.
func TestHostileWritesOfBerthsAccountAreRefusedByTheHost(t *testing.T) {
	r, ctx := startReleases(t), t.Context()
	syncOptions, err := resources.Parse([]string{exported})
	if err != nil {
		t.Fatal(err)
	}
	for c, s := range map[client.Client]translate.Space{r.berth: {Name: "mine", Platform: "berth"}, r.other: {Name: "theirs", Platform: "other"}} {
		release := map[string]string{"berth": "platform", "other": "second"}[s.Platform]
		if err := isolation.Apply(ctx, c, s, nil, with(release, syncOptions)...); err != nil {
			t.Fatal(err)
		}
	}
	const classes, reader = "platform-berth-space-classes", "platform-berth-space-dedicated-reader"
	// Somebody else's, of the names that Berth's would have.
	opaque := kubeconfigSecret("opaque-kubeconfig", "opaque", "berth", corev1.SecretTypeOpaque)
	plain := kubeconfigSecret("plain-kubeconfig", "", "", corev1.SecretTypeOpaque)
	plain.Labels = nil
	theirs := kubeconfigSecret("theirs-kubeconfig", "theirs", "other", kubeconfigType)
	admins := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "berth-admins"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"},
	}
	viewers := &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "berth-viewers"}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: classes},
	}
	theirPods := podOf(func(s *appsv1.StatefulSet) { s.Name, s.Labels = "berth-web", nil })
	argos := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "argocd", Name: "argocd-secret"}}
	foreignRole := spaceBinding("berth-theirs", "berth-theirs") // of the name that this release's would have
	for _, o := range []client.Object{
		namespace("berth-archive", nil), namespace("berth-older", labelsOf("older", "")), namespace("unnamed", labelsOf("unnamed", "berth")),
		opaque, plain, theirs, admins, viewers, foreignRole, argos, theirPods, &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: "mine"}},
	} {
		if err := r.admin.Create(ctx, o.DeepCopyObject().(client.Object)); err != nil {
			t.Fatal(err)
		}
	}
	mine := func(change func(*corev1.Namespace)) *corev1.Namespace {
		ns := namespace("berth-mine", labelsOf("mine", "berth"))
		change(ns)
		return ns
	}
	nothing := client.RawPatch(types.MergePatchType, []byte(`{}`))
	applied := func(o client.Object) func() error { return func() error { return apply(ctx, r.berth, o) } }
	patched := func(o client.Object, patch string) func() error {
		return func() error { return r.berth.Patch(ctx, o, client.RawPatch(types.MergePatchType, []byte(patch))) }
	}
	deleted := func(o client.Object) func() error { return func() error { return r.berth.Delete(ctx, o) } }
	label := func(key, value string) string { return fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, key, value) }
	both := fmt.Sprintf(`{"metadata":{"labels":{%q:"archive",%q:"berth"}}}`, translate.LabelSpace, translate.LabelPlatform)
	limits := func(namespace string) client.Object {
		return &corev1.LimitRange{TypeMeta: typed("v1", "LimitRange"), ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "berth"}}
	}
	account := func(namespace string) client.Object {
		return &corev1.ServiceAccount{TypeMeta: typed("v1", "ServiceAccount"), ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: syncer.ServiceAccount}}
	}
	const byPolicy, byRBAC, byEscalation = "ValidatingAdmissionPolicy 'platform-berth'", "cannot ", "is attempting to grant RBAC permissions not currently held"
	for name, test := range map[string]struct {
		reason string
		do     func() error
		says   string
	}{
		"a namespace without labels":         {"it is no space's", applied(namespace("free", labelsOf("", ""))), byPolicy},
		"a namespace of another name":        {"the name tells whose it is", applied(namespace("free", labelsOf("free", "berth"))), byPolicy},
		"a namespace without a space":        {"any name that begins so would do", applied(namespace("berth-free", labelsOf("", "berth"))), byPolicy},
		"a namespace without a platform":     {"another platform would take it", applied(namespace("berth-free", labelsOf("free", ""))), byPolicy},
		"a namespace of another platform":    {"it would be that platform's", applied(namespace("berth-free", labelsOf("free", "other"))), byPolicy},
		"an existing namespace":              {"it is the host's", patched(namespace("kube-system", nil), label("a", "b")), byPolicy},
		"both labels on somebody's":          {"it would be taken over", patched(namespace("berth-archive", nil), both), byPolicy},
		"both labels, applied":               {"it would be taken over", applied(namespace("berth-archive", labelsOf("archive", "berth"))), byPolicy},
		"an older Berth's namespace":         {"whose is for the admin to say", patched(namespace("berth-older", nil), label(translate.LabelPlatform, "berth")), byPolicy},
		"a namespace that bears both labels": {"its name is no space's", patched(namespace("unnamed", nil), label("a", "b")), byPolicy},
		"another platform's namespace":       {"it is that platform's", patched(namespace("berth-theirs", nil), label(translate.LabelPlatform, "berth")), byPolicy},
		"delete its own namespace":           {"all that Berth has", deleted(namespace("platform", nil)), byPolicy},
		"delete somebody's namespace":        {"it is theirs", deleted(namespace("berth-archive", nil)), byPolicy},
		"delete another platform's":          {"a space with all that it runs", deleted(namespace("berth-theirs", nil)), byPolicy},
		"give a namespace away":              {"to another platform", applied(mine(func(n *corev1.Namespace) { n.Labels[translate.LabelPlatform] = "other" })), byPolicy},
		"rename a space":                     {"to another space", applied(mine(func(n *corev1.Namespace) { n.Labels[translate.LabelSpace] = "theirs" })), byPolicy},
		"privileged pods": {"Pod Security", applied(mine(func(n *corev1.Namespace) {
			n.Labels["pod-security.kubernetes.io/enforce"] = "privileged"
		})), byPolicy},
		"pods of an older level": {"Pod Security", applied(mine(func(n *corev1.Namespace) {
			n.Labels["pod-security.kubernetes.io/enforce-version"] = "v1.0"
		})), byPolicy},
		"no Pod Security":              {"Pod Security", patched(namespace("berth-mine", nil), `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":null}}}`), byPolicy},
		"limits of the host's":         {"it is no space's namespace", applied(limits("kube-system")), byPolicy},
		"limits of its own":            {"it is no space's namespace", applied(limits("platform")), byPolicy},
		"limits of another platform's": {"it is that platform's", applied(limits("berth-theirs")), byPolicy},
		"an account of another's":      {"it is that platform's", applied(account("berth-theirs")), byPolicy},
		"a role for another's":         {"it is that platform's", applied(spaceBinding("berth-theirs", "berth-theirs")), byPolicy},
		"a role for itself":            {"all Secrets of the host's", applied(spaceBinding("kube-system", "platform")), byPolicy},
		"a role for another account":   {"its own namespace's account alone", applied(spaceBinding("berth-mine", "berth-theirs")), byPolicy},
		"to pose as another's account": {"it is that platform's", applied(impersonation("berth-theirs", "platform", "berth")), byPolicy},
		"to pose as any account":       {"the namespace is no space's", applied(impersonation("kube-system", "platform", "berth")), byPolicy},
		"to have another pose":         {"Berth's account alone", applied(impersonation("berth-mine", "second", "berth")), byPolicy},
		"to have a tenant's pods pose": {"Berth's account alone", applied(impersonation("berth-mine", "berth-mine", "default")), byPolicy},
		"somebody's Secret":            {"it would be read", func() error { return r.berth.Get(ctx, client.ObjectKeyFromObject(plain), &corev1.Secret{}) }, byRBAC},
		"its own Secret": {"no more than others", func() error {
			return r.berth.Get(ctx, client.ObjectKey{Namespace: "platform", Name: "mine-kubeconfig"}, &corev1.Secret{})
		}, byRBAC},
		"Secrets elsewhere": {"they are the host's", func() error {
			return r.berth.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "a"}, &corev1.Secret{})
		}, byRBAC},
		"a patch that changes nothing":   {"the answer holds what is in it", func() error { return r.berth.Patch(ctx, plain.DeepCopy(), nothing) }, byPolicy},
		"the same, as a dry run":         {"the answer holds what is in it", func() error { return r.berth.Patch(ctx, plain.DeepCopy(), nothing, client.DryRunAll) }, byPolicy},
		"the same of one with labels":    {"its type tells that it is not Berth's", func() error { return r.berth.Patch(ctx, opaque.DeepCopy(), nothing) }, byPolicy},
		"the same of another platform's": {"the label tells whose it is", func() error { return r.berth.Patch(ctx, theirs.DeepCopy(), nothing) }, byPolicy},
		"labels on somebody's Secret":    {"it would be taken over", patched(plain.DeepCopy(), `{"metadata":{"labels":{"berth.dev/kubeconfig":"plain","`+translate.LabelPlatform+`":"berth"}}}`), byPolicy},
		"data of somebody's Secret":      {"it would be overwritten", patched(opaque.DeepCopy(), `{"data":{"kubeconfig":"Yg=="}}`), byPolicy},
		"delete somebody's Secret":       {"it is theirs", deleted(plain.DeepCopy()), byPolicy},
		"delete one with labels":         {"it is theirs", deleted(opaque.DeepCopy()), byPolicy},
		"delete another platform's one":  {"it is that platform's", deleted(theirs.DeepCopy()), byPolicy},
		"a Secret of another name":       {"nobody expects it", applied(kubeconfigSecret("registry", "registry", "berth", kubeconfigType)), byPolicy},
		"a Secret of no space":           {"any name that ends so would do", applied(kubeconfigSecret("x-kubeconfig", "y", "berth", kubeconfigType)), byPolicy},
		"a Secret of Argo CD's":          {"it is Argo CD's", deleted(argos.DeepCopy()), byPolicy},
		"another repository":             {"Argo CD would take it", applied(inArgoCD("mine", "berth", "repository")), byPolicy},
		"the other release's cluster":    {"it is that platform's", applied(inArgoCD("theirs", "other", "-argocd-cluster")), byPolicy},
		"clusters of Argo CD": {"they would be read", func() error {
			return r.berth.Get(ctx, client.ObjectKey{Namespace: "argocd", Name: "mine-argocd-cluster"}, &corev1.Secret{})
		}, byRBAC},
		"the token of an account": {"it would be the account's", applied(func() *corev1.Secret {
			s := kubeconfigSecret("token-kubeconfig", "token", "berth", corev1.SecretTypeServiceAccountToken)
			s.Annotations = map[string]string{corev1.ServiceAccountNameKey: "default"}
			return s
		}()), byPolicy},
		"cluster-admin":                               {"RBAC has it bind no other role", applied(classBinding("berth-mine2", "mine2", "cluster-admin", "berth-mine2")), byEscalation},
		"the role for classes, for itself":            {"the subject is not the space's account", applied(classBinding("berth-free", "free", classes, "platform")), byPolicy},
		"the role for classes, for two":               {"the subject is not the space's account", applied(classBinding("berth-free", "free", classes, "berth-free", "berth-theirs")), byPolicy},
		"the other release's classes":                 {"RBAC has it bind no other role", applied(classBinding("berth-free", "free", "second-berth-space-classes", "berth-free")), byEscalation},
		"the namespaces' role, everywhere":            {"pods of all namespaces", applied(classBinding("berth-free", "free", "platform-berth-space", "berth-free")), byPolicy},
		"the reader's role, for itself":               {"the subject is not the space's account", applied(classBinding("berth-free:dedicated", "free", reader, "platform")), byPolicy},
		"the reader's role, by another name":          {"the name says which role", applied(classBinding("berth-free", "free", reader, "berth-free")), byPolicy},
		"the role for classes, by the reader's name":  {"the name says which role", applied(classBinding("berth-free:dedicated", "free", classes, "berth-free")), byPolicy},
		"the watching role, everywhere":               {"Secrets of all namespaces", applied(classBinding("berth-free:dedicated", "free", "platform-berth-space-dedicated", "berth-free")), byPolicy},
		"a binding of another name":                   {"nothing tells whose it is", applied(classBinding("free", "free", classes, "free")), byPolicy},
		"somebody's binding":                          {"it would be changed", patched(admins.DeepCopy(), label("a", "b")), byEscalation},
		"somebody's binding of a role of the chart's": {"it would be changed", patched(viewers.DeepCopy(), label("a", "b")), byPolicy},
		"labels on somebody's binding":                {"it would be taken over", applied(classBinding(viewers.Name, "viewers", classes, viewers.Name)), byPolicy},
		"delete somebody's binding":                   {"it is theirs", deleted(admins.DeepCopy()), byPolicy},
		"delete another platform's binding":           {"it is that platform's", deleted(&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "berth-theirs"}}), byPolicy},
		"delete another platform's role binding":      {"it is that platform's", deleted(foreignRole.DeepCopy()), byPolicy},
		"delete another role binding":                 {"it isolates no space", deleted(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "berth-mine", Name: "tenants"}}), byRBAC},
		"a subject of another's binding":              {"it is that platform's", patched(&rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "berth-theirs"}}, `{"subjects":null}`), byEscalation},
		"a pod with somebody's Secret": {"it would be read", applied(podOf(func(s *appsv1.StatefulSet) {
			s.Spec.Template.Spec.Volumes[0].Secret.SecretName = "plain-kubeconfig"
		})), byPolicy},
		"a pod with an account": {"its token", applied(podOf(func(s *appsv1.StatefulSet) {
			s.Spec.Template.Spec.AutomountServiceAccountToken = nil
		})), byPolicy},
		"a pod with a token": {"of an account of the namespace", applied(podOf(func(s *appsv1.StatefulSet) {
			s.Spec.Template.Spec.Volumes[1].VolumeSource = corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Path: "t"}}}}}
		})), byPolicy},
		"a pod with the node's files": {"the node", applied(podOf(func(s *appsv1.StatefulSet) {
			s.Spec.Template.Spec.Volumes[1].VolumeSource = corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}
		})), byPolicy},
		"a pod with a volume without a bound": {"it fills the node's disk", applied(podOf(func(s *appsv1.StatefulSet) {
			s.Spec.Template.Spec.Volumes[1].EmptyDir.SizeLimit = nil
		})), byPolicy},
		"a pod in the node's network": {"the node", applied(podOf(func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.HostNetwork = true })), byPolicy},
		"a pod of another image":      {"any program", applied(podOf(func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Image = "other" })), byPolicy},
		"a pod of another command":    {"any program", applied(podOf(func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Args[0] = "serve" })), byPolicy},
		"a pod with variables of a Secret": {"it would be read", applied(podOf(func(s *appsv1.StatefulSet) {
			s.Spec.Template.Spec.Containers[0].EnvFrom = []corev1.EnvFromSource{{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: "plain-kubeconfig"}}}}
		})), byPolicy},
		"a pod with privileges": {"the node", applied(podOf(func(s *appsv1.StatefulSet) {
			s.Spec.Template.Spec.Containers[0].SecurityContext.Capabilities.Add = []corev1.Capability{"SYS_ADMIN"}
		})), byPolicy},
		"a pod with another's volume": {"the store of another space", applied(podOf(func(s *appsv1.StatefulSet) { s.Spec.VolumeClaimTemplates[0].Spec.VolumeName = "theirs" })), byPolicy},
		"a pod of no space":           {"nothing tells whose it is", applied(podOf(func(s *appsv1.StatefulSet) { s.Labels = nil })), byPolicy},
		"a pod of another platform":   {"it would be that platform's", applied(podOf(func(s *appsv1.StatefulSet) { s.Labels[translate.LabelPlatform] = "other" })), byPolicy},
		"labels on somebody's pods":   {"it would be taken over", patched(theirPods.DeepCopy(), `{"metadata":{"labels":{"berth.dev/dedicated":"web","`+translate.LabelPlatform+`":"berth"}}}`), byPolicy},
		"delete somebody's pods":      {"they are theirs", deleted(theirPods.DeepCopy()), byPolicy},
		"pods elsewhere":              {"it is the host's", applied(podOf(func(s *appsv1.StatefulSet) { s.Namespace = "kube-system" })), byRBAC},
		"a Service of its own pod":    {"tenants would reach another's pod", applied(serviceOf(map[string]string{"app.kubernetes.io/name": "berth"})), byPolicy},
		"a Service of another space":  {"it would get that space's requests", applied(serviceOf(map[string]string{"berth.dev/dedicated": "b", translate.LabelPlatform: "berth"})), byPolicy},
		"a Secret for no pod": {"any name would do", applied(func() *corev1.Secret {
			s := kubeconfigSecret("registry", "registry", "berth", "berth.dev/dedicated")
			return s
		}()), byPolicy},
		"a role": {"it would bind that", applied(&rbacv1.ClusterRole{TypeMeta: typed("rbac.authorization.k8s.io/v1", "ClusterRole"), ObjectMeta: metav1.ObjectMeta{Name: "berth-mine"}}), byRBAC},
		"a space of this platform, by other": {"it would be that platform's", func() error {
			return r.other.Patch(ctx, &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}, client.RawPatch(types.MergePatchType, []byte(label("a", "b"))))
		}, "only spaces of the platform other"},
		"a space for another platform": {"it would be that platform's", func() error {
			return r.berth.Create(ctx, &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: "free"}, Spec: v1alpha1.SpaceSpec{PlatformName: "other"}})
		}, byPolicy},
		"its status": {"it is that platform's", func() error {
			return r.other.Status().Patch(ctx, &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}, client.RawPatch(types.MergePatchType, []byte(`{"status":{"version":"v1"}}`)))
		}, "only spaces of the platform other"},
		"delete it": {"it is that platform's", func() error { return r.other.Delete(ctx, &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}) }, "only spaces of the platform other"},
	} {
		if err := test.do(); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s (%s): %v, want it forbidden: %s", name, test.reason, err, test.says)
		}
	}

	// A Secret of another type is refused even before the policy is asked: that holds where there is no policy, too.
	for _, o := range []*corev1.Secret{kubeconfigSecret(opaque.Name, "opaque", "berth", kubeconfigType), kubeconfigSecret(plain.Name, "plain", "berth", kubeconfigType)} {
		if err := apply(ctx, r.berth, o); !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "immutable") {
			t.Errorf("somebody's Secret %s, applied: %v, want its type be immutable", o.Name, err)
		}
	}
	// Nor may either pose as the account of the other's space, as which it could write all the same.
	r.eventually(t, "Berth may not pose as the account of its space", func(ctx context.Context) bool { return r.mayPose(ctx, t, "platform", "berth-mine") })
	r.eventually(t, "the other may not pose as the account of its space", func(ctx context.Context) bool { return r.mayPose(ctx, t, "second", "berth-theirs") })
	for release, namespaces := range map[string][]string{"platform": {"berth-theirs", "kube-system", ""}, "second": {"berth-mine", "kube-system", ""}} {
		for _, namespace := range namespaces {
			if r.mayPose(ctx, t, release, namespace) {
				t.Errorf("the release in %s may pose as the account of %q", release, namespace)
			}
		}
	}
	// What is its own, it may write.
	at := metav1.ObjectMeta{Name: "mine"}
	for _, own := range []struct {
		what string
		do   func() error
	}{
		{"pod of a dedicated space", applied(podOf(func(*appsv1.StatefulSet) {}))},
		{"pod of a dedicated space, again", applied(podOf(func(*appsv1.StatefulSet) {}))},
		{"Service of that", applied(serviceOf(map[string]string{pod.Label: "mine", translate.LabelPlatform: "berth"}))},
		{"space", patched(&v1alpha1.Space{ObjectMeta: at}, label("a", "b"))},
		{"status", func() error {
			return r.berth.Status().Patch(ctx, &v1alpha1.Space{ObjectMeta: at}, client.RawPatch(types.MergePatchType, []byte(`{"status":{"version":"v1"}}`)))
		}},
		{"space, deleted", deleted(&v1alpha1.Space{ObjectMeta: at})},
		{"space, created", func() error { return r.berth.Create(ctx, &v1alpha1.Space{ObjectMeta: at}) }},
		{"space of the other", func() error {
			return r.other.Create(ctx, &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: "theirs"}, Spec: v1alpha1.SpaceSpec{PlatformName: "other"}})
		}},
		{"namespace", patched(namespace("berth-mine", nil), label("a", "b"))},
		{"limits", applied(limits("berth-mine"))},
		{"cluster of Argo CD", applied(inArgoCD("mine", "berth", "-argocd-cluster"))},
		{"cluster of Argo CD, deleted", deleted(inArgoCD("mine", "berth", "-argocd-cluster"))},
		{"cluster of the other's Argo CD", func() error { return apply(ctx, r.other, inArgoCD("theirs", "other", "-argocd-cluster")) }},
	} {
		if err := own.do(); err != nil {
			t.Errorf("its own %s: %v", own.what, err)
		}
	}
}

// inArgoCD is a Secret of a space for Argo CD.
func inArgoCD(space, platform, suffix string) *corev1.Secret {
	secret := kubeconfigSecret(space+suffix, space, platform, kubeconfigType)
	secret.Namespace = "argocd"
	return secret
}

// spaceBinding binds the role of spaces' accounts in a namespace to the account of a namespace.
func spaceBinding(namespace, subject string) *rbacv1.RoleBinding {
	return roleBinding(namespace, "platform-berth-space", subject, syncer.ServiceAccount)
}

// impersonation has an account pose as the account of a space.
func impersonation(namespace, subject, name string) *rbacv1.RoleBinding {
	return roleBinding(namespace, "platform-berth-space"+isolation.ImpersonatorSuffix, subject, name)
}

func roleBinding(namespace, role, subject, name string) *rbacv1.RoleBinding {
	return &rbacv1.RoleBinding{
		TypeMeta: typed("rbac.authorization.k8s.io/v1", "RoleBinding"), ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: role},
		RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: name, Namespace: subject}},
	}
}

// priorityClass is one that the tenant of a space made.
func priorityClass(name, space string) *schedulingv1.PriorityClass {
	return &schedulingv1.PriorityClass{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{translate.LabelSpace: space}}, Value: 1, PreemptionPolicy: ptr.To(corev1.PreemptNever),
	}
}

// mayPose asks the host whether the account of a release may pose as the account of the space of a namespace.
func (r *twoReleases) mayPose(ctx context.Context, t *testing.T, release, namespace string) bool {
	t.Helper()
	review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               "system:serviceaccount:" + release + ":berth",
		Groups:             []string{"system:serviceaccounts", "system:serviceaccounts:" + release, "system:authenticated"},
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "impersonate", Resource: "serviceaccounts", Namespace: namespace, Name: syncer.ServiceAccount},
	}}
	if err := r.admin.Create(ctx, review); err != nil {
		t.Fatal(err)
	}
	return review.Status.Allowed
}

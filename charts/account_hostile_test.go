// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"context"
	"fmt"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/platform/pod"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

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
	quota := func(namespace, name string) *corev1.ResourceQuota {
		return &corev1.ResourceQuota{TypeMeta: typed("v1", "ResourceQuota"), ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	}
	for _, o := range []client.Object{
		quota("berth-mine", "tenants"), quota("berth-mine", "berth-admins"),
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
		"no Pod Security":               {"Pod Security", patched(namespace("berth-mine", nil), `{"metadata":{"labels":{"pod-security.kubernetes.io/enforce":null}}}`), byPolicy},
		"limits of the host's":          {"it is no space's namespace", applied(limits("kube-system")), byPolicy},
		"limits of its own":             {"it is no space's namespace", applied(limits("platform")), byPolicy},
		"limits of another platform's":  {"it is that platform's", applied(limits("berth-theirs")), byPolicy},
		"a quota of the host's":         {"it is no space's namespace", applied(quota("kube-system", "berth")), byPolicy},
		"a quota of another platform's": {"it is that platform's", deleted(quota("berth-theirs", "berth-batch")), byPolicy},
		"delete a space's quota":        {"nothing would bound the space", deleted(quota("berth-mine", "berth")), byPolicy},
		"an admin's quota":              {"it would be changed", patched(quota("berth-mine", "tenants"), label("a", "b")), byPolicy},
		"delete an admin's quota":       {"it is theirs", deleted(quota("berth-mine", "tenants")), byPolicy},
		"delete one of such a name":     {"it is theirs", deleted(quota("berth-mine", "berth-admins")), byPolicy},
		"labels on somebody's quota":    {"it would be taken over", patched(quota("berth-mine", "berth-admins"), label(translate.LabelManagedBy, translate.ManagedBy)), byPolicy},
		"a quota of another name":       {"it is no scoped one", applied(quota("berth-mine", "mine")), byPolicy},
		"an account of another's":       {"it is that platform's", applied(account("berth-theirs")), byPolicy},
		"a role for another's":          {"it is that platform's", applied(spaceBinding("berth-theirs", "berth-theirs")), byPolicy},
		"a role for itself":             {"all Secrets of the host's", applied(spaceBinding("kube-system", "platform")), byPolicy},
		"a role for another account":    {"its own namespace's account alone", applied(spaceBinding("berth-mine", "berth-theirs")), byPolicy},
		"to pose as another's account":  {"it is that platform's", applied(impersonation("berth-theirs", "platform", "berth")), byPolicy},
		"to pose as any account":        {"the namespace is no space's", applied(impersonation("kube-system", "platform", "berth")), byPolicy},
		"to have another pose":          {"Berth's account alone", applied(impersonation("berth-mine", "second", "berth")), byPolicy},
		"to have a tenant's pods pose":  {"Berth's account alone", applied(impersonation("berth-mine", "berth-mine", "default")), byPolicy},
		"somebody's Secret":             {"it would be read", func() error { return r.berth.Get(ctx, client.ObjectKeyFromObject(plain), &corev1.Secret{}) }, byRBAC},
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

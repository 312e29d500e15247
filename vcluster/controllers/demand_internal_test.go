// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package controllers

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/kubernetes/cmd/kube-controller-manager/names"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"k8s.io/kubernetes/pkg/controller/deployment/util"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/bounds"
)

// encoded is an object as the API server stores it.
func encoded(t *testing.T, v schema.GroupVersion, object runtime.Object) []byte {
	t.Helper()
	info, ok := runtime.SerializerInfoForMediaType(legacyscheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	if !ok {
		t.Fatal("there is no protobuf")
	}
	value, err := runtime.Encode(legacyscheme.Codecs.EncoderForVersion(info.Serializer, v), object)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// Each write wakes those controllers that have something to do with it, and no
// other.
func TestAWriteWakesTheControllersItIsFor(t *testing.T) {
	owned := metav1.ObjectMeta{Name: "o", OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p", UID: "u"}}}
	now := metav1.Now()
	orphaning := metav1.ObjectMeta{Name: "o", DeletionTimestamp: &now, Finalizers: []string{metav1.FinalizerOrphanDependents}}
	going := metav1.ObjectMeta{Name: "o", DeletionTimestamp: &now, Finalizers: []string{"example.com/mine"}}
	furnishing := []string{names.RootCACertificatePublisherController, names.ServiceAccountController}
	core := corev1.SchemeGroupVersion

	for reason, test := range map[string]struct {
		key   string
		value []byte
		want  []string
	}{
		"a plain object":  {"/registry/configmaps/a/o", encoded(t, core, &corev1.ConfigMap{}), nil},
		"an owned one":    {"/registry/configmaps/a/o", encoded(t, core, &corev1.ConfigMap{ObjectMeta: owned}), []string{names.GarbageCollectorController}},
		"an orphaning":    {"/registry/configmaps/a/o", encoded(t, core, &corev1.ConfigMap{ObjectMeta: orphaning}), []string{names.GarbageCollectorController}},
		"a slow deletion": {"/registry/configmaps/a/o", encoded(t, core, &corev1.ConfigMap{ObjectMeta: going}), nil},
		"an owned event":  {"/registry/events/a/o", encoded(t, core, &corev1.Event{ObjectMeta: owned}), nil},
		"a custom object": {"/registry/example.com/things/a/o", []byte(`{"metadata":{"name":"o"}}`), nil},
		"an owned one of these": {"/registry/example.com/things/a/o",
			[]byte(`{"metadata":{"name":"o","ownerReferences":[{"name":"x"}]}}`), []string{names.GarbageCollectorController}},
		"one that only speaks of owners": {"/registry/example.com/things/a/o",
			[]byte(`{"metadata":{"name":"o"},"data":{"ownerReferences":[{"name":"x"}]}}`), nil},
		"what can't be read":      {"/registry/example.com/things/a/o", []byte{0xd9, 0xd9, 0xf7}, []string{names.GarbageCollectorController}},
		"protobuf that is broken": {"/registry/configmaps/a/o", []byte("k8s\x00\xff\xff"), []string{names.GarbageCollectorController}},

		"a namespace":           {"/registry/namespaces/a", encoded(t, core, &corev1.Namespace{}), furnishing},
		"a namespace that goes": {"/registry/namespaces/a", encoded(t, core, &corev1.Namespace{ObjectMeta: going}), append([]string{names.NamespaceController}, furnishing...)},
		"the root CA":           {"/registry/configmaps/a/kube-root-ca.crt", encoded(t, core, &corev1.ConfigMap{}), furnishing[:1]},
		"a default account":     {"/registry/serviceaccounts/a/default", encoded(t, core, &corev1.ServiceAccount{}), furnishing[1:]},
		"another account":       {"/registry/serviceaccounts/a/robot", encoded(t, core, &corev1.ServiceAccount{}), nil},

		"the API's service": {"/registry/services/specs/default/kubernetes", encoded(t, core, &corev1.Service{}), nil},
		"a service": {"/registry/services/specs/default/web", encoded(t, core, &corev1.Service{}),
			[]string{names.EndpointsController, names.EndpointSliceController}},
		"a secret": {"/registry/secrets/a/o", encoded(t, core, &corev1.Secret{Type: corev1.SecretTypeOpaque}), nil},
		"a token": {"/registry/secrets/a/o", encoded(t, core, &corev1.Secret{Type: corev1.SecretTypeServiceAccountToken}),
			[]string{names.LegacyServiceAccountTokenCleanerController, names.ServiceAccountTokenController}},
		"a deployment": {"/registry/deployments/a/o", encoded(t, appsv1.SchemeGroupVersion, &appsv1.Deployment{}),
			[]string{names.DeploymentController, names.ReplicaSetController}},
		"a pod that a job left": {"/registry/pods/a/o",
			encoded(t, core, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Finalizers: []string{"batch.kubernetes.io/job-tracking"}}}),
			[]string{names.EphemeralVolumeController, names.JobController}},
		"a new range": {"/registry/servicecidrs/more",
			encoded(t, networkingv1.SchemeGroupVersion, &networkingv1.ServiceCIDR{ObjectMeta: metav1.ObjectMeta{Name: "more"}}),
			[]string{names.ServiceCIDRController}},
	} {
		var woken []string
		for name, d := range demands(nil) {
			if slices.ContainsFunc(d.writes, func(w trigger) bool { return w.matches(test.key, test.value) }) {
				woken = append(woken, name)
			}
		}
		slices.Sort(woken)
		slices.Sort(test.want)
		if !slices.Equal(woken, test.want) {
			t.Errorf("%s: wakes %v, want %v", reason, woken, test.want)
		}
	}
}

// A controller that is not listed would always run, in every space.
func TestAllControllersOfASpaceRunOnDemand(t *testing.T) {
	listed := demands(nil)
	for _, name := range ForSpaces() {
		if _, ok := listed[name]; !ok {
			t.Errorf("nothing says when %s is needed", name)
		}
	}
}

func TestAggregatedRulesAreThoseOfTheSelectedRoles(t *testing.T) {
	rule := func(resource string) rbacv1.PolicyRule { return rbacv1.PolicyRule{Resources: []string{resource}} }
	labelled := func(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"to": "all"}}, Rules: rules}
	}
	all := labelled("all", rule("own"))
	all.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"to": "all"}}}}
	same := rule("y")
	same.Verbs, same.ResourceNames = []string{}, []string{} // as good as none
	got, err := aggregate(all, []*rbacv1.ClusterRole{labelled("b", same, rule("z")), all, labelled("a", rule("x"), rule("y")),
		{ObjectMeta: metav1.ObjectMeta{Name: "other"}, Rules: []rbacv1.PolicyRule{rule("other")}}})
	if err != nil || len(got) != 3 || got[0].Resources[0] != "x" || got[1].Resources[0] != "y" || got[2].Resources[0] != "z" {
		t.Errorf("%v, %v", got, err)
	}
	// L3: many different rules, and the same ones often, took minutes to compare with each other.
	var many, often []*rbacv1.ClusterRole
	for i := range 60 {
		var different, same []rbacv1.PolicyRule
		for j := range 1000 {
			different, same = append(different, rule(fmt.Sprintf("%d-%d", i, j))), append(same, rule("x"))
		}
		many, often = append(many, labelled(fmt.Sprint(i), different...)), append(often, labelled(fmt.Sprint(i), same...))
	}
	if _, err := aggregate(all, many); !errors.Is(err, bounds.ErrExceeded) || !strings.Contains(err.Error(), "limit role-rules") {
		t.Errorf("many different rules: %v", err)
	}
	if _, err := aggregate(all, often); !errors.Is(err, errTooManyRules) {
		t.Errorf("a rule often: %v", err)
	}
}

// T8
func TestTimersOfWhatIsUnderWay(t *testing.T) {
	now := time.Now().Truncate(time.Second)
	at := metav1.NewTime(now.Add(-time.Minute))
	deployment := func(reason string) *appsv1.Deployment {
		return &appsv1.Deployment{
			Spec:   appsv1.DeploymentSpec{ProgressDeadlineSeconds: ptr.To[int32](600)},
			Status: appsv1.DeploymentStatus{Conditions: []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Reason: reason, LastUpdateTime: at}}},
		}
	}
	daemons := func(minReady, ready, available, unavailable int32) time.Time {
		return daemonSetTimer(&appsv1.DaemonSet{
			Spec:   appsv1.DaemonSetSpec{MinReadySeconds: minReady},
			Status: appsv1.DaemonSetStatus{NumberReady: ready, NumberAvailable: available, NumberUnavailable: unavailable},
		}, now)
	}
	for reason, test := range map[string]struct{ got, want time.Time }{
		"daemons that are there":    {daemons(30, 3, 3, 0), time.Time{}},
		"daemons that are new":      {daemons(30, 3, 2, 1), now.Add(30 * time.Second)},
		"daemons that do not start": {daemons(30, 2, 2, 1), now.Add(daemonBackoff)},
		"daemons that just started": {daemons(0, 3, 2, 1), now.Add(daemonBackoff)},
		"a rollout":                 {deploymentTimer(deployment(util.ReplicaSetUpdatedReason), now), now.Add(9 * time.Minute)},
		"one that has ended":        {deploymentTimer(deployment(util.NewRSAvailableReason), now), time.Time{}},
		"one that was given up":     {deploymentTimer(deployment(util.TimedOutReason), now), time.Time{}},
		"pods that are new":         {availability(now, 30, 3, 2), now.Add(30 * time.Second)},
		"pods that are there":       {availability(now, 30, 3, 3), time.Time{}},
		"an eviction": {budgetTimer(&policyv1.PodDisruptionBudget{Status: policyv1.PodDisruptionBudgetStatus{
			DisruptedPods: map[string]metav1.Time{"p": at}}}, now), now.Add(time.Minute)},
		"a namespace that goes": {namespaceTimer(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &at}}, now), now.Add(namespaceRetry)},
		"a namespace that does not go": {namespaceTimer(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			DeletionTimestamp: ptr.To(metav1.NewTime(now.Add(-time.Hour)))}}, now), time.Time{}},
	} {
		if !test.got.Equal(test.want) {
			t.Errorf("%s: %v, want %v", reason, test.got, test.want)
		}
	}
}

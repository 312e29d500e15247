// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenancy_test

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/internal/testcrd"
)

// aggregated is an API service whose server does not answer.
func aggregated(group, version string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService", "metadata": map[string]any{"name": version + "." + group},
		"spec": map[string]any{
			"group": group, "version": version, "groupPriorityMinimum": int64(1000), "versionPriority": int64(10), "insecureSkipTLSVerify": true,
			"service": map[string]any{"namespace": "default", "name": "none", "port": int64(443)},
		},
	}}
}

// converted is a definition with two versions, between which a webhook converts that does not answer.
func converted() map[string]any {
	d := definition()
	spec := d["spec"].(map[string]any)
	first := spec["versions"].([]any)[0].(map[string]any)
	spec["versions"] = []any{first, map[string]any{"name": "v2", "served": true, "storage": false, "schema": first["schema"]}}
	spec["conversion"] = map[string]any{"strategy": "Webhook", "webhook": map[string]any{
		"conversionReviewVersions": []any{"v1"}, "clientConfig": map[string]any{"url": "https://127.0.0.1:1/convert"},
	}}
	return d
}

// P1, O8: a tenant that serves, or converts, a kind of which the administrator publishes objects does not stop Berth from keeping
// everything else, in namespaces that exist and in new ones.
func TestHostileServersOfPublishedKindsStopNothingElse(t *testing.T) {
	for how, prepare := range map[string]func(*env, dynamic.Interface) (version string){
		"an API service": func(e *env, d dynamic.Interface) string {
			_, err := d.Resource(gvr("apiregistration.k8s.io", "v1", "apiservices")).Create(e.t.Context(), aggregated("example.com", "v1"), metav1.CreateOptions{})
			if err != nil {
				e.t.Fatal(err)
			}
			eventually(e.t, func() error {
				_, err := d.Resource(gvr("example.com", "v1", "widgets")).List(e.t.Context(), metav1.ListOptions{})
				if apierrors.IsServiceUnavailable(err) {
					return nil
				}
				return errOr(err)
			})
			return "example.com/v1"
		},
		"a conversion": func(e *env, d dynamic.Interface) string {
			_, err := d.Resource(gvr("apiextensions.k8s.io", "v1", "customresourcedefinitions")).Create(e.t.Context(), &unstructured.Unstructured{Object: converted()}, metav1.CreateOptions{})
			if err != nil {
				e.t.Fatal(err)
			}
			eventually(e.t, func() error {
				_, err := d.Resource(gvr("example.com", "v1", "widgets")).Namespace("default").Create(e.t.Context(), &unstructured.Unstructured{Object: map[string]any{
					"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "own"},
				}}, metav1.CreateOptions{})
				return err
			})
			return "example.com/v2"
		},
	} {
		t.Run(how, func(t *testing.T) {
			e := startEnv(t, &access.State{Space: "solar", Tenant: "solar"})
			d, err := dynamic.NewForConfig(e.hostile()["a cluster admin"])
			if err != nil {
				t.Fatal(err)
			}
			if err := createNamespace(t, e.admin(), "before"); err != nil {
				t.Fatal(err)
			}
			version := prepare(e, d)
			state := full()
			state.Published = []access.Published{
				publish(v1alpha1.SameNamespace, map[string]any{"apiVersion": version, "kind": "Widget", "metadata": map[string]any{"namespace": "default", "name": "w"}}),
				publish(v1alpha1.EveryNamespace, configMap("web", "every", "one")),
			}
			e.source.Set(state)
			if err := createNamespace(t, e.admin(), "after"); err != nil {
				t.Fatal(err)
			}
			for _, namespace := range []string{"before", "after"} {
				eventually(t, func() error {
					_, err := e.admin().NetworkingV1().NetworkPolicies(namespace).Get(t.Context(), "berth-solar-0", metav1.GetOptions{})
					if err == nil {
						_, err = e.admin().CoreV1().ConfigMaps(namespace).Get(t.Context(), "every", metav1.GetOptions{})
					}
					return err
				})
			}
			// What is no longer published goes.
			next := *state
			next.Published = state.Published[:1]
			e.source.Set(&next)
			eventually(t, func() error {
				_, err := e.admin().CoreV1().ConfigMaps("before").Get(t.Context(), "every", metav1.GetOptions{})
				if apierrors.IsNotFound(err) {
					return nil
				}
				return errOr(err)
			})
		})
	}
}

// P1: an API server of the tenant that answered for a group first doesn't keep a published definition of the group, and its objects,
// out of the space.
func TestAPublishedDefinitionReplacesAServerOfTheTenant(t *testing.T) {
	e := startEnv(t, &access.State{Space: "solar", Tenant: "solar"})
	d, err := dynamic.NewForConfig(e.hostile()["a cluster admin"])
	if err != nil {
		t.Fatal(err)
	}
	services, widgets := d.Resource(gvr("apiregistration.k8s.io", "v1", "apiservices")), d.Resource(gvr("example.com", "v1", "widgets")).Namespace("default")
	if _, err := services.Create(t.Context(), aggregated("example.com", "v1"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if _, err := widgets.List(t.Context(), metav1.ListOptions{}); !apierrors.IsServiceUnavailable(err) {
			return fmt.Errorf("the tenant's server does not answer for the group: %w", errOr(err))
		}
		return nil
	})
	state := full()
	state.Published = []access.Published{
		publish(v1alpha1.SameNamespace, definition()),
		publish(v1alpha1.SameNamespace, map[string]any{"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"namespace": "default", "name": "w"}}),
	}
	e.source.Set(state)
	eventually(t, func() error {
		_, err := widgets.Get(t.Context(), "w", metav1.GetOptions{})
		return err
	})
	if _, err := services.Create(t.Context(), aggregated("example.com", "v2"), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("another version of the group can be handed over: %v", err)
	}
}

// O8: the APIs by which Berth keeps objects are the space's.
func TestHostileServersDoNotReplaceTheSpacesOwnAPIs(t *testing.T) {
	e := startEnv(t, full())
	for who, config := range e.hostile() {
		d, err := dynamic.NewForConfig(config)
		if err != nil {
			t.Fatal(err)
		}
		services := d.Resource(gvr("apiregistration.k8s.io", "v1", "apiservices"))
		patch := []byte(`{"spec":{"service":{"namespace":"default","name":"none","port":443},"insecureSkipTLSVerify":true}}`)
		for _, name := range []string{"v1.networking.k8s.io", "v1.rbac.authorization.k8s.io", "v1.apiextensions.k8s.io", "v1."} {
			_, err := services.Patch(t.Context(), name, types.MergePatchType, patch, metav1.PatchOptions{})
			if err := forbidden(err, "the space itself serves"); err != nil {
				t.Errorf("%s: %s: %v", who, name, err)
			}
		}
	}
}

// P1: a namespace is not left out because of its name.
func TestHostileNamesOfNamespacesEscapeNothing(t *testing.T) {
	state := full()
	state.Published = []access.Published{publish(v1alpha1.EveryNamespace, configMap("web", "every", "one"))}
	e := startEnv(t, state)
	if err := createNamespace(t, e.as("alice", v1alpha1.OwnersGroup), "kube-mine"); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		_, err := e.admin().CoreV1().ConfigMaps("kube-mine").Get(t.Context(), "every", metav1.GetOptions{})
		return err
	})
}

// O5: an owner without the role admin does not get it by a ServiceAccount.
func TestHostileOwnersPromoteToNoMoreThanTheyAre(t *testing.T) {
	state := capsule()
	state.Access.OwnerProfile, state.Access.ServiceAccountPromotion = v1alpha1.SpaceAdmin, v1alpha1.Enabled
	state.Access.Owners = append(state.Access.Owners, v1alpha1.Owner{Kind: v1alpha1.UserKind, Name: "bob", ClusterRoles: []string{"edit"}})
	e := startEnv(t, state)
	bob := e.as("bob", v1alpha1.OwnersGroup)
	if err := createNamespace(t, bob, "web"); err != nil {
		t.Fatal(err)
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "up", Labels: map[string]string{v1alpha1.LabelPromote: "true"}}}
	eventually(t, func() error {
		_, err := bob.CoreV1().ServiceAccounts("web").Create(t.Context(), account, metav1.CreateOptions{})
		return forbidden(err, "only owners")
	})
	if _, err := e.as("alice", v1alpha1.OwnersGroup).CoreV1().ServiceAccounts("web").Create(t.Context(), account, metav1.CreateOptions{}); err != nil {
		t.Error(err)
	}
}

// O8: no pod of a new namespace escapes its network policies, though the keeper has very much to do.
func TestHostilePodsOfNewNamespacesHaveTheirPolicies(t *testing.T) {
	state := full()
	state.Namespaces.LimitRanges = nil
	for i := range 200 {
		state.Access.Owners = append(state.Access.Owners, v1alpha1.Owner{Kind: v1alpha1.UserKind, Name: fmt.Sprintf("user-%d", i)})
	}
	e := startEnv(t, state)
	for _, name := range []string{"a", "b", "c", "d", "web"} {
		if err := createNamespace(t, e.admin(), name); err != nil {
			t.Fatal(err)
		}
	}
	eventually(t, func() error {
		_, err := e.admin().CoreV1().Pods("web").Create(t.Context(), &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "p"}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "c"}}},
		}, metav1.CreateOptions{})
		return err
	})
	if _, err := e.admin().NetworkingV1().NetworkPolicies("web").Get(t.Context(), "berth-solar-0", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

// P1: a namespace and a definition that the tenant had before they were published stay when they are no longer, with all in them.
// Those that Berth made go.
func TestWhatWasTheTenantsStaysWhenItIsNoLongerPublished(t *testing.T) {
	state := capsule()
	e := startEnv(t, state)
	d, err := dynamic.NewForConfig(e.hostile()["a cluster admin"])
	if err != nil {
		t.Fatal(err)
	}
	if err := createNamespace(t, e.admin(), "web"); err != nil {
		t.Fatal(err)
	}
	all := d.Resource(gvr("apiextensions.k8s.io", "v1", "customresourcedefinitions"))
	if _, err := all.Create(t.Context(), &unstructured.Unstructured{Object: definition()}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	widgets := d.Resource(gvr("example.com", "v1", "widgets")).Namespace("web")
	eventually(t, func() error {
		_, err := widgets.Create(t.Context(), &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "example.com/v1", "kind": "Widget", "metadata": map[string]any{"name": "own"},
		}}, metav1.CreateOptions{})
		return err
	})
	namespace := func(name string) map[string]any {
		return map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}
	}
	next := *state
	next.Published = []access.Published{publish("", namespace("web")), publish("", namespace("theirs")), publish("", definition())}
	e.source.Set(&next)
	labeled := func(want bool) {
		t.Helper()
		eventually(t, func() error {
			n, err := e.admin().CoreV1().Namespaces().Get(t.Context(), "web", metav1.GetOptions{})
			if err != nil {
				return err
			}
			crd, err := all.Get(t.Context(), "widgets.example.com", metav1.GetOptions{})
			if err != nil {
				return err
			}
			for _, labels := range []map[string]string{n.Labels, crd.GetLabels()} {
				if _, is := labels[v1alpha1.LabelPublication]; is != want {
					return fmt.Errorf("the labels are %v", labels)
				}
			}
			return nil
		})
	}
	labeled(true)
	e.source.Set(state)
	labeled(false)
	eventually(t, func() error {
		_, err := e.admin().CoreV1().Namespaces().Get(t.Context(), "theirs", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return errOr(err)
	})
	if _, err := widgets.Get(t.Context(), "own", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}

// O1, O7: an owner doesn't get the rights of a ServiceAccount that owns the tenant, too, by creating its namespace.
func TestHostileOwnersDoNotCreateTheNamespacesOfOthers(t *testing.T) {
	state := capsule()
	state.Access.Owners = append(state.Access.Owners,
		v1alpha1.Owner{Kind: v1alpha1.UserKind, Name: "eve", ClusterRoles: []string{"edit"}},
		v1alpha1.Owner{Kind: v1alpha1.ServiceAccountKind, Name: "system:serviceaccount:gitops:robot", ClusterRoles: []string{"cluster-admin"}})
	e := startEnv(t, state)
	eve := e.as("eve", v1alpha1.OwnersGroup)
	if err := forbidden(createNamespace(t, eve, "gitops"), "metadata.name", "system:serviceaccount:gitops:robot"); err != nil {
		t.Error(err)
	}
	if err := createNamespace(t, eve, "other"); err != nil {
		t.Error(err)
	}
	if err := createNamespace(t, e.admin(), "gitops"); err != nil {
		t.Error(err)
	}
}

// C3, C6: an API server of the tenant doesn't answer for the group of a definition that the platform forces on the space, neither one that
// was there before nor a new one.
func TestHostileServersDoNotAnswerForForcedDefinitions(t *testing.T) {
	host := testcrd.New("example.com", "Gadget", &apiextensionsv1.JSONSchemaProps{Type: "object"})
	// As a host fills them in.
	host.Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: apiextensionsv1.NoneConverter}
	host.Spec.Names.Singular, host.Status.AcceptedNames.Singular = "gadget", "gadget"
	crd, err := definitions.Serve(host, "share")
	if err != nil {
		t.Fatal(err)
	}
	shared := &definitions.Source{}
	shared.Set(definitions.NewSet(""))
	e := startEnvWith(t, &access.State{Space: "solar", Tenant: "solar"}, shared)
	d, err := dynamic.NewForConfig(e.hostile()["a cluster admin"])
	if err != nil {
		t.Fatal(err)
	}
	services, gadgets := d.Resource(gvr("apiregistration.k8s.io", "v1", "apiservices")), d.Resource(gvr("example.com", "v1", "gadgets")).Namespace("default")
	if _, err := services.Create(t.Context(), aggregated("example.com", "v1"), metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if _, err := gadgets.List(t.Context(), metav1.ListOptions{}); !apierrors.IsServiceUnavailable(err) {
			return fmt.Errorf("the tenant's server does not answer for the group: %w", errOr(err))
		}
		return nil
	})
	shared.Set(definitions.NewSet("", &definitions.Shared{CRD: crd, Forced: true, InRange: true}))
	eventually(t, func() error {
		_, err := gadgets.List(t.Context(), metav1.ListOptions{})
		return err
	})
	if _, err := services.Create(t.Context(), aggregated("example.com", "v2"), metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("another version of the group can be handed over: %v", err)
	}
	patch := []byte(`{"metadata":{"labels":{"kube-aggregator.kubernetes.io/automanaged":null}},"spec":{"service":{"namespace":"default","name":"none","port":443},"insecureSkipTLSVerify":true}}`)
	if _, err := services.Patch(t.Context(), "v1.example.com", types.MergePatchType, patch, metav1.PatchOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("the space's own service can be handed over: %v", err)
	}
	// One that is only offered may be answered for by whom the tenant wants.
	shared.Set(definitions.NewSet("", &definitions.Shared{CRD: crd, InRange: true}))
	if _, err := services.Create(t.Context(), aggregated("example.com", "v2"), metav1.CreateOptions{}); err != nil {
		t.Errorf("a definition that is not forced takes the group: %v", err)
	}
}

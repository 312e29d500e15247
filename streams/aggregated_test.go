// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	apiregistrationv1 "k8s.io/kube-aggregator/pkg/apis/apiregistration/v1"
	"k8s.io/kube-aggregator/pkg/apis/apiregistration/v1/helper"
	aggregator "k8s.io/kube-aggregator/pkg/client/clientset_generated/clientset"
	"k8s.io/utils/ptr"

	"github.com/berth-dev/berth/internal/testhost"
)

const wardleService = "v1alpha1.wardle.example.com"

func wardleResource() schema.GroupVersionResource {
	return schema.GroupVersionResource{Group: "wardle.example.com", Version: "v1alpha1", Resource: "flunders"}
}

func (s *space) apiServices(t *testing.T) aggregator.Interface {
	t.Helper()
	c, err := aggregator.NewForConfig(s.config)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// aggregate has the service hook serve flunders.
func (s *space) aggregate(t *testing.T, ca []byte) {
	t.Helper()
	s.aggregateAs(t, wardleService, ca)
}

func (s *space) aggregateAs(t *testing.T, name string, ca []byte) {
	t.Helper()
	version, group, _ := strings.Cut(name, ".")
	if _, err := s.apiServices(t).ApiregistrationV1().APIServices().Create(t.Context(), &apiregistrationv1.APIService{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: apiregistrationv1.APIServiceSpec{
			Group: group, Version: version, GroupPriorityMinimum: 2000, VersionPriority: 200, CABundle: ca,
			Service: &apiregistrationv1.ServiceReference{Namespace: "default", Name: "hook", Port: ptr.To[int32](443)},
		},
	}, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// eventually waits until the API service is available, or is not for a reason.
func (s *space) eventuallyAvailable(t *testing.T, name string, status apiregistrationv1.ConditionStatus, reason string) (said string) {
	t.Helper()
	testhost.Eventually(t, "API service "+name+": "+reason, func(ctx context.Context) error {
		v, err := s.apiServices(t).ApiregistrationV1().APIServices().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		c := helper.GetAPIServiceConditionByType(v, apiregistrationv1.Available)
		if c == nil || c.Status != status || c.Reason != reason {
			return fmt.Errorf("available: %v", c)
		}
		said = c.Message
		return nil
	})
	return said
}

func flunder(name string) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "wardle.example.com/v1alpha1", "kind": "Flunder", "metadata": map[string]any{"name": name},
	}}
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

func (s *space) flunders(t *testing.T, as string) dynamic.ResourceInterface {
	t.Helper()
	config := rest.CopyConfig(s.config)
	config.Impersonate.UserName = as
	// Which change nothing (A6).
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			r.Header.Set("X-Remote-User", "admin")
			r.Header.Set("X-Remote-Group", "system:masters")
			return next.RoundTrip(r)
		})
	})
	c, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return c.Resource(wardleResource()).Namespace("default")
}

// S8, C1: an API server in a pod of the space extends its API, unmodified: it
// learns whom to believe from the space, and asks it what callers may.
func TestAnAPIServerInAPodExtendsTheSpaces(t *testing.T) {
	s := theEnv(t).space(t, "extended")
	e := s.startExtension(t)
	s.aggregate(t, e.ca)
	s.eventuallyAvailable(t, wardleService, apiregistrationv1.ConditionFalse, "ServiceNotFound")
	s.run(t, newPod("web", "app"))
	s.expose(t, map[string]string{"app": "web"}, e.port)
	s.eventuallyAvailable(t, wardleService, apiregistrationv1.ConditionTrue, "Passed")

	testhost.Eventually(t, "discovery", func(context.Context) error {
		_, lists, err := s.Discovery().ServerGroupsAndResources()
		if err != nil {
			return err
		}
		if !slices.ContainsFunc(lists, func(l *metav1.APIResourceList) bool {
			return l.GroupVersion == "wardle.example.com/v1alpha1" && len(l.APIResources) == 1 && l.APIResources[0].Name == "flunders"
		}) {
			return errors.New("no flunders are offered")
		}
		return nil
	})

	t.Run("as its admin", func(t *testing.T) {
		events, err := s.flunders(t, "").Watch(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer events.Stop()
		if _, err := s.flunders(t, "").Create(t.Context(), flunder("one"), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if event := <-events.ResultChan(); event.Object == nil || event.Object.(*unstructured.Unstructured).GetName() != "one" {
			t.Errorf("the watch shows %v", event)
		}
		list, err := s.flunders(t, "").List(t.Context(), metav1.ListOptions{})
		if err != nil || len(list.Items) != 1 {
			t.Errorf("listed: %v (%v)", list, err)
		}
	})

	t.Run("as whom it is told", func(t *testing.T) {
		if _, err := s.flunders(t, "jane").Get(t.Context(), "one", metav1.GetOptions{}); !apierrors.IsForbidden(err) {
			t.Errorf("jane, who may nothing: %v", err)
		}
		for _, err := range []error{
			second(s.RbacV1().ClusterRoles().Create(t.Context(), &rbacv1.ClusterRole{
				ObjectMeta: metav1.ObjectMeta{Name: "flunders"},
				Rules:      []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{"wardle.example.com"}, Resources: []string{"flunders"}}},
			}, metav1.CreateOptions{})),
			second(s.RbacV1().RoleBindings("default").Create(t.Context(), &rbacv1.RoleBinding{
				ObjectMeta: metav1.ObjectMeta{Name: "flunders"},
				Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: "jane"}},
				RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "flunders"},
			}, metav1.CreateOptions{})),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		testhost.Eventually(t, "jane's right", func(ctx context.Context) error {
			_, err := s.flunders(t, "jane").Get(ctx, "one", metav1.GetOptions{})
			return err
		})
		if heard := e.flunders.heard(); !slices.Contains(heard, "jane[system:authenticated] get") {
			t.Errorf("the server did not hear from jane: %q", heard)
		}
	})

	t.Run("its kinds are explained", func(t *testing.T) {
		testhost.Eventually(t, "schema", func(context.Context) error {
			paths, err := s.Discovery().OpenAPIV3().Paths()
			if err != nil {
				return err
			}
			document := paths["apis/wardle.example.com/v1alpha1"]
			if document == nil {
				return errors.New("it is not listed")
			}
			schema, err := document.Schema("application/json")
			if err == nil && !strings.Contains(string(schema), "FlunderSpec") {
				err = fmt.Errorf("it is %s", schema)
			}
			return err
		})
	})

	t.Run("a namespace takes them along", func(t *testing.T) {
		if _, err := s.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "gone"}}, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := s.CoreV1().Namespaces().Delete(t.Context(), "gone", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		testhost.Eventually(t, "no namespace", func(ctx context.Context) error {
			if _, err := s.CoreV1().Namespaces().Get(ctx, "gone", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("it is there: %w", err)
			}
			return nil
		})
		if !slices.ContainsFunc(e.flunders.heard(), func(h string) bool { return strings.HasPrefix(h, "system:apiserver") && strings.HasSuffix(h, " list") }) {
			t.Errorf("the controller of namespaces did not look for flunders: %q", e.flunders.heard())
		}
	})

	t.Run("it is available after the space has slept", func(t *testing.T) {
		if err := s.shard.Sleep(t.Context(), s.name); err != nil {
			t.Fatal(err)
		}
		// At once, whatever this request has to wait for.
		if _, err := s.flunders(t, "").Get(t.Context(), "one", metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
		testhost.Eventually(t, "flunders in discovery", func(context.Context) error {
			_, _, err := s.Discovery().ServerGroupsAndResources()
			return err
		})
	})

	t.Run("the control plane does not follow them", func(t *testing.T) {
		for _, h := range e.flunders.heard() {
			if strings.HasPrefix(h, "system:apiserver") && strings.HasSuffix(h, "watch") {
				t.Errorf("%s", h)
			}
		}
	})

	t.Run("it goes", func(t *testing.T) {
		if err := s.apiServices(t).ApiregistrationV1().APIServices().Delete(t.Context(), wardleService, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		testhost.Eventually(t, "no flunders", func(ctx context.Context) error {
			groups, err := s.Discovery().ServerGroups()
			if err != nil {
				return err
			}
			if slices.ContainsFunc(groups.Groups, func(g metav1.APIGroup) bool { return g.Name == "wardle.example.com" }) {
				return errors.New("the group is there")
			}
			_, err = s.flunders(t, "").Get(ctx, "one", metav1.GetOptions{})
			if !apierrors.IsNotFound(err) {
				return fmt.Errorf("they are there: %w", err)
			}
			return nil
		})
	})
}

func second[T any](_ T, err error) error { return err }

// A space's pods serve so many API services and no more; one that is deleted no longer counts.
func TestHowManyAPIServicesPodsServeIsBounded(t *testing.T) {
	s := theEnv(t).space(t, "many")
	const most = 32
	for i := range most {
		s.aggregateAs(t, "v1.group"+strconv.Itoa(i)+".example.com", nil)
	}
	s.eventuallyAvailable(t, "v1.group"+strconv.Itoa(most-1)+".example.com", apiregistrationv1.ConditionFalse, "ServiceNotFound")
	s.aggregateAs(t, "v1.last.example.com", nil)
	if said := s.eventuallyAvailable(t, "v1.last.example.com", apiregistrationv1.ConditionFalse, "TooMany"); !strings.Contains(said, "at most 32") {
		t.Errorf("it says %q", said)
	}
	if err := s.apiServices(t).ApiregistrationV1().APIServices().Delete(t.Context(), "v1.group0.example.com", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	s.eventuallyAvailable(t, "v1.last.example.com", apiregistrationv1.ConditionFalse, "ServiceNotFound")
}

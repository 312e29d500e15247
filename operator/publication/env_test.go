// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package publication

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metricsserver "sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/berth-dev/berth/api/crds"
	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/published/expression"
)

var shared = sync.OnceValues(testhost.Start)

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(testhost.Main(m, shared))
}

// env is a host with the definitions, and the controllers of this package if they were started.
type env struct {
	client.Client
	config  *rest.Config
	watches *watches
	timeout time.Duration // of watches
}

func newEnv(t *testing.T) *env {
	t.Helper()
	host, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	e := &env{config: rest.CopyConfig(host.Config())}
	e.config.ContentType, e.config.AcceptContentTypes = "", ""
	e.Client, err = client.New(e.config, client.Options{Scheme: newScheme(t)})
	if err != nil {
		t.Fatal(err)
	}
	definitions, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, definition := range definitions {
		if err := e.Create(t.Context(), definition); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	testhost.Eventually(t, "serve the definitions", func(ctx context.Context) error {
		return errors.Join(e.List(ctx, &v1alpha1.SpaceList{}), e.List(ctx, &v1alpha1.TenantList{}), e.List(ctx, &v1alpha1.PublicationList{}), e.List(ctx, &v1alpha1.PublishedObjectList{}))
	})
	return e
}

func newScheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme), rbacv1.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	return scheme
}

// start starts the controllers as a user of the host, or as its admin if the name is empty. Stop may be called before the test
// ends.
func (e *env) start(t *testing.T, user string) (stop func()) {
	t.Helper()
	config := rest.CopyConfig(e.config)
	config.QPS = -1
	config.Impersonate.UserName = user
	m, err := manager.New(config, manager.Options{
		Scheme: newScheme(t), Logger: logr.Discard(), Metrics: metricsserver.Options{BindAddress: "0"}, Controller: ctrlconfig.Controller{SkipNameValidation: ptr.To(true)},
	})
	if err != nil {
		t.Fatal(err)
	}
	compiler, err := expression.NewCompiler()
	if err != nil {
		t.Fatal(err)
	}
	sources, err := dynamic.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	e.watches = newWatches(sources, clock.RealClock{})
	e.watches.timeout = cmp.Or(e.timeout, e.watches.timeout)
	if err := setUp(m, compiler, e.watches); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(t.Context()))
	done := make(chan error, 1)
	go func() { done <- m.Start(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("the manager ended with %v", err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// make creates objects, which are deleted when the test ends.
func (e *env) make(t *testing.T, objects ...client.Object) {
	t.Helper()
	for _, o := range objects {
		if err := e.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			ctx := context.WithoutCancel(t.Context())
			if err := e.Delete(ctx, o); client.IgnoreNotFound(err) != nil {
				t.Error(err)
			}
		})
	}
}

// publish creates a Publication, and waits until nothing is left of it when the test ends.
func (e *env) publish(t *testing.T, name string, spec v1alpha1.PublicationSpec) *v1alpha1.Publication {
	t.Helper()
	p := &v1alpha1.Publication{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}
	e.make(t, p)
	return p
}

// objects returns what is published of a publication, without the API version.
func (e *env) objects(ctx context.Context, publication string) (objects []map[string]any, _ error) {
	list := &v1alpha1.PublishedObjectList{}
	if err := e.List(ctx, list, client.MatchingLabels{v1alpha1.LabelPublication: publication}); err != nil {
		return nil, err
	}
	for _, item := range list.Items {
		var object map[string]any
		if err := json.Unmarshal(item.Spec.Object.Raw, &object); err != nil {
			return nil, err
		}
		objects = append(objects, object)
	}
	return objects, nil
}

// publishes waits until exactly the objects of these names are published.
func (e *env) publishes(t *testing.T, publication string, names ...string) {
	t.Helper()
	testhost.Eventually(t, fmt.Sprintf("publish %q by %s", names, publication), func(ctx context.Context) error {
		objects, err := e.objects(ctx, publication)
		got := map[string]bool{}
		for _, o := range objects {
			got[o["metadata"].(map[string]any)["name"].(string)] = true
		}
		for _, name := range names {
			if !got[name] {
				return errors.Join(err, fmt.Errorf("%s is missing in %v", name, got))
			}
		}
		if err == nil && len(objects) != len(names) {
			return fmt.Errorf("%v are published", got)
		}
		return err
	})
}

// reports waits until a publication has a condition Ready with a reason, and a message with all parts.
func (e *env) reports(t *testing.T, publication, reason string, parts ...string) {
	t.Helper()
	testhost.Eventually(t, fmt.Sprintf("report %s of %s", reason, publication), func(ctx context.Context) error {
		p := &v1alpha1.Publication{}
		if err := e.Get(ctx, client.ObjectKey{Name: publication}, p); err != nil {
			return err
		}
		ready := meta.FindStatusCondition(p.Status.Conditions, v1alpha1.ConditionReady)
		if ready == nil || ready.Reason != reason || p.Status.ObservedGeneration != p.Generation || (ready.Status == metav1.ConditionTrue) != (reason == v1alpha1.ReasonPublished) {
			return fmt.Errorf("the status is %+v", p.Status)
		}
		for _, part := range parts {
			if !strings.Contains(ready.Message, part) {
				return fmt.Errorf("the message %q doesn't say %q", ready.Message, part)
			}
		}
		return nil
	})
}

func marked() map[string]string { return map[string]string{v1alpha1.LabelPublish: "true"} }

func configMap(name string, labels, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: labels}, Data: data}
}

func configMaps() v1alpha1.PublicationSource {
	return v1alpha1.PublicationSource{APIVersion: "v1", Kind: "ConfigMap", Namespace: "default"}
}

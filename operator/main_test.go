// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package operator_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/operator"
	"github.com/berth-dev/berth/platform/spaceobjects"
)

var shared = sync.OnceValues(start)

func TestMain(m *testing.M) {
	ctrl.SetLogger(klog.Background())
	os.Exit(testhost.Main(m, shared))
}

// start starts a host that has the definitions.
func start() (*testhost.Host, error) {
	host, err := testhost.Start()
	if err != nil {
		return nil, err
	}
	objects, err := spaceobjects.Open(host.Config(), v1alpha1.DefaultPlatformName)
	if err == nil {
		err = objects.Define(context.Background())
	}
	return host, err
}

// env is a host with an operator. No platform serves its spaces: tests write their status.
type env struct {
	testing.TB
	client.WithWatch
	host *testhost.Host
}

// newEnv returns the host, with nothing on it that an earlier test has made.
func newEnv(t testing.TB) *env {
	t.Helper()
	host, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), coordinationv1.AddToScheme(scheme), corev1.AddToScheme(scheme), eventsv1.AddToScheme(scheme), admissionregistrationv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	config := *host.Config()
	config.QPS = -1
	config.ContentType, config.AcceptContentTypes = "", ""
	c, err := client.NewWithWatch(&config, client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	e := &env{TB: t, WithWatch: c, host: host}
	e.eventually("the discovery has the definitions", func(ctx context.Context) error { return e.List(ctx, &v1alpha1.TenantList{}) })
	t.Cleanup(e.clean)
	return e
}

// run runs an operator until the returned function is called, at the latest at the end of the test.
func (e *env) run(change ...func(*operator.Config)) (stop func() error) {
	e.Helper()
	config := operator.Config{Host: e.host.Config(), ShardNamespace: shardNamespace, Logger: klog.Background()}
	for _, f := range change {
		f(&config)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- operator.New(config).Run(ctx) }()
	stop = sync.OnceValue(func() error {
		cancel()
		return <-done
	})
	e.Cleanup(func() {
		if err := stop(); err != nil {
			e.Errorf("the operator ended: %v", err)
		}
	})
	return stop
}

// clean removes all objects, by force, and the policies that would refuse it.
func (e *env) clean() {
	ctx, cancel := context.WithTimeout(context.Background(), testhost.Timeout)
	defer cancel()
	err := wait.PollUntilContextCancel(ctx, 20*time.Millisecond, true, func(ctx context.Context) (bool, error) {
		left := 0
		for _, list := range []client.ObjectList{
			&admissionregistrationv1.ValidatingAdmissionPolicyBindingList{}, &v1alpha1.TenantList{}, &v1alpha1.SpaceList{}, &v1alpha1.TenantOwnerList{}, &v1alpha1.BerthConfigurationList{}, &v1alpha1.QuotaLedgerList{},
		} {
			if err := e.List(ctx, list); err != nil {
				return false, err
			}
			err := meta.EachListItem(list, func(o runtime.Object) error {
				object := o.(client.Object)
				if binding, ok := o.(*admissionregistrationv1.ValidatingAdmissionPolicyBinding); ok && !strings.HasSuffix(binding.Spec.PolicyName, "-tenant") && !strings.HasPrefix(binding.Spec.PolicyName, "berth-tenant") {
					return nil // those of the isolation of spaces
				}
				left++
				if len(object.GetFinalizers()) > 0 {
					_ = e.Patch(ctx, object, client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`)))
				}
				_ = e.Delete(ctx, object)
				return nil
			})
			if err != nil {
				return false, err
			}
		}
		return left == 0, nil
	})
	if err != nil {
		e.Errorf("remove all objects: %v", err)
	}
}

// tenant returns a Tenant to create.
func tenant(name string, change ...func(*v1alpha1.TenantSpec)) *v1alpha1.Tenant {
	one := &v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, f := range change {
		f(&one.Spec)
	}
	return one
}

func below(parent string) func(*v1alpha1.TenantSpec) {
	return func(s *v1alpha1.TenantSpec) { s.Parent = parent }
}

func private(s *v1alpha1.TenantSpec) { s.Private = new(bool); *s.Private = true }

func ownedBy(names ...string) func(*v1alpha1.TenantSpec) {
	return func(s *v1alpha1.TenantSpec) {
		for _, name := range names {
			kind, name, found := strings.Cut(name, "/")
			if !found {
				kind, name = "User", kind
			}
			s.Owners = append(s.Owners, v1alpha1.Owner{Kind: v1alpha1.SubjectKind(kind), Name: name})
		}
	}
}

func (e *env) create(objects ...client.Object) {
	e.Helper()
	for _, object := range objects {
		if err := e.Create(e.Context(), object); err != nil {
			e.Fatal(err)
		}
	}
}

// change changes an object, and tries again after conflicts.
func change[T client.Object](e *env, object T, f func(T)) {
	e.Helper()
	e.eventually("change "+object.GetName(), func(ctx context.Context) error {
		if err := e.Get(ctx, client.ObjectKeyFromObject(object), object); err != nil {
			return err
		}
		f(object)
		return e.Update(ctx, object)
	})
}

func (e *env) eventually(what string, check func(context.Context) error) {
	e.Helper()
	testhost.Eventually(e.TB, what, check)
}

// tenant waits until a tenant is as it should be.
func (e *env) tenantIs(name, what string, is func(*v1alpha1.Tenant) bool) *v1alpha1.Tenant {
	e.Helper()
	one := &v1alpha1.Tenant{}
	e.eventually(fmt.Sprintf("tenant %s: %s", name, what), func(ctx context.Context) error {
		if err := e.Get(ctx, client.ObjectKey{Name: name}, one); err != nil {
			return err
		}
		if !is(one) {
			return fmt.Errorf("it is labels %v, status %+v", one.Labels, one.Status)
		}
		return nil
	})
	return one
}

// ready waits for the reason of Ready, and returns the tenant.
func (e *env) reason(name, reason string) *v1alpha1.Tenant {
	e.Helper()
	return e.tenantIs(name, reason, func(t *v1alpha1.Tenant) bool {
		return readyOf(t).Reason == reason && readyOf(t).ObservedGeneration == t.Generation
	})
}

func readyOf(t *v1alpha1.Tenant) metav1.Condition {
	if ready := meta.FindStatusCondition(t.Status.Conditions, v1alpha1.ConditionReady); ready != nil {
		return *ready
	}
	return metav1.Condition{}
}

// spaceIs waits until a space is as it should be.
func (e *env) spaceIs(name, what string, is func(*v1alpha1.Space) bool) *v1alpha1.Space {
	e.Helper()
	one := &v1alpha1.Space{}
	e.eventually(fmt.Sprintf("space %s: %s", name, what), func(ctx context.Context) error {
		if err := e.Get(ctx, client.ObjectKey{Name: name}, one); err != nil {
			return err
		}
		if !is(one) {
			return fmt.Errorf("it is labels %v, spec %+v", one.Labels, one.Spec)
		}
		return nil
	})
	return one
}

// serve writes the status of a space, as a platform would.
func (e *env) serve(name string, f func(*v1alpha1.SpaceStatus)) {
	e.Helper()
	e.eventually("write the status of space "+name, func(ctx context.Context) error {
		space := &v1alpha1.Space{}
		if err := e.Get(ctx, client.ObjectKey{Name: name}, space); err != nil {
			return err
		}
		meta.SetStatusCondition(&space.Status.Conditions, metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: "Running", Message: "it serves"})
		if f != nil {
			f(&space.Status)
		}
		return e.Status().Update(ctx, space)
	})
}

// gone waits until an object is gone.
func (e *env) gone(object client.Object) {
	e.Helper()
	e.eventually(fmt.Sprintf("%T %s is gone", object, object.GetName()), func(ctx context.Context) error {
		err := e.Get(ctx, client.ObjectKeyFromObject(object), object)
		if err == nil {
			return fmt.Errorf("it is there: %+v", object)
		}
		return client.IgnoreNotFound(err)
	})
}

// mustJSON returns values as text to compare.
func mustJSON(values ...any) string {
	text, err := json.Marshal(values)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/crds"
	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/syncer/resources"
)

// sharingEnv is a space whose syncer writes what is shared.
type sharingEnv struct {
	*testEnv
	client.Client // of the host's admin
}

func newSharingEnv(t *testing.T, name string) *sharingEnv {
	t.Helper()
	env := &sharingEnv{testEnv: newEnv(t, name)}
	env.shares = true
	config := env.cluster.Config()
	config.ContentType, config.AcceptContentTypes = "", ""
	admin, err := client.New(config, client.Options{Scheme: resources.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	env.Client = admin
	definitions, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, definition := range definitions {
		if definition.Spec.Names.Kind != "SharedObject" {
			continue
		}
		if err := admin.Create(t.Context(), definition); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	testhost.Eventually(t, "serve the definition", func(ctx context.Context) error { return admin.List(ctx, &v1alpha1.SharedObjectList{}) })
	return env
}

// shared waits until the host has these objects of the space, each as scope, name, and the value a of its data.
func (env *sharingEnv) shared(t *testing.T, want ...string) {
	t.Helper()
	testhost.Eventually(t, "share "+strings.Join(want, ", "), func(ctx context.Context) error { return env.checkShared(ctx, want) })
}

func (env *sharingEnv) checkShared(ctx context.Context, want []string) error {
	list := &v1alpha1.SharedObjectList{}
	if err := env.List(ctx, list, client.InNamespace(env.space.HostNamespace())); err != nil {
		return err
	}
	var got []string
	for i := range list.Items {
		o := &corev1.ConfigMap{}
		if err := json.Unmarshal(list.Items[i].Spec.Object.Raw, o); err != nil {
			return err
		}
		got = append(got, fmt.Sprintf("%s %s %s", list.Items[i].Spec.Scope, o.Name, o.Data["a"]))
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("-want +got:\n%s", diff)
	}
	return nil
}

func (env *sharingEnv) configMap(t *testing.T, name, scope, value string) {
	t.Helper()
	must(t, env.virtual.CoreV1().ConfigMaps("default").Create, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{v1alpha1.LabelShare: scope}}, Data: map[string]string{"a": value},
	})
}

func (env *sharingEnv) patch(t *testing.T, name, body string) {
	t.Helper()
	if _, err := env.virtual.CoreV1().ConfigMaps("default").Patch(t.Context(), name, types.MergePatchType, []byte(body), metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
}

func aboutShared(c call) bool {
	return c.to == toHost && strings.Contains(c.URL.Path, "/sharedobjects")
}

// S7, H8: a syncer that is killed at any of its writes of what is shared, and started again, leaves nothing more and nothing less.
func TestASyncerThatIsKilledSharesWhatIsShared(t *testing.T) {
	env := newSharingEnv(t, "sharer")
	for n := 1; ; n++ {
		crashed := false
		for _, how := range []crashMode{unsent, unanswered} {
			var mu sync.Mutex
			left := n
			var run *syncerRun
			run, err := env.startRun(func(run *syncerRun) rule {
				return func(c call, send func() (*http.Response, error)) (*http.Response, error) {
					if !aboutShared(c) || !c.writes() {
						return send()
					}
					mu.Lock()
					defer mu.Unlock()
					if left--; left != 0 {
						return send()
					}
					crashed = true
					if how == unanswered {
						if resp, err := send(); err == nil {
							_ = resp.Body.Close()
						}
					}
					run.crash()
					return nil, errCut
				}
			})
			if err != nil {
				t.Fatal(err)
			}
			dead := func() bool {
				select {
				case <-run.crashed:
					return true
				default:
					return false
				}
			}
			// settle waits until what was done has an effect. If the syncer dies of it, which may be at any time, another one starts.
			settle := func(want ...string) {
				t.Helper()
				testhost.Eventually(t, "share "+strings.Join(want, ", "), func(ctx context.Context) error {
					if dead() {
						_ = env.kill()
						run = env.begin(nil)
					}
					return env.checkShared(ctx, want)
				})
			}
			env.configMap(t, "one", v1alpha1.ShareChildren, "1")
			env.configMap(t, "two", v1alpha1.ShareDescendants, "1")
			settle("Children one 1", "Descendants two 1")
			env.patch(t, "one", `{"metadata":{"labels":{"berth.dev/share":null}}}`)
			env.patch(t, "two", `{"data":{"a":"2"}}`)
			settle("Descendants two 2")
			for _, name := range []string{"one", "two"} {
				if err := env.virtual.CoreV1().ConfigMaps("default").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
			}
			settle()
			if err := env.kill(); err != nil {
				t.Fatal(err)
			}
		}
		if !crashed || t.Failed() {
			t.Logf("there were %d writes", n-1)
			break
		}
	}
}

// H8, M3, Q1: the syncer shares nothing that can't be shared, whoever labeled it, and says so; it removes what it didn't write. The
// account of a space reaches no other namespace. A space that shares nothing costs one request for each start.
func TestHostileASyncerSharesOnlyWhatCanBeShared(t *testing.T) {
	env := newSharingEnv(t, "sharer-bad")
	foreign := &v1alpha1.SharedObject{ObjectMeta: metav1.ObjectMeta{Namespace: env.space.HostNamespace(), Name: "shared-07"}}
	foreign.Spec = v1alpha1.SharedObjectSpec{Scope: v1alpha1.ScopeChildren, Object: runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"Pod"}`)}}
	stale := foreign.DeepCopy()
	stale.Name, stale.Spec.Object.Raw = "shared-08", []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default","name":"gone"}}`)
	for _, o := range []client.Object{foreign, stale} {
		if err := env.Create(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	var mu sync.Mutex
	requests := 0
	count := func(c call, send func() (*http.Response, error)) (*http.Response, error) {
		if aboutShared(c) {
			mu.Lock()
			requests++
			mu.Unlock()
		}
		return send()
	}
	env.begin(count)
	env.shared(t)
	if err := env.kill(); err != nil {
		t.Fatal(err)
	}
	requests = 0
	run := env.begin(count)
	testhost.Eventually(t, "be idle", func(context.Context) error {
		if !run.syncer.Idle() {
			return fmt.Errorf("it is busy")
		}
		return nil
	})
	mu.Lock()
	if requests != 1 {
		t.Errorf("a space that shares nothing sends %d requests", requests)
	}
	mu.Unlock()

	env.configMap(t, "unknown", "everybody", "1")
	env.awaitWarning(t, "ConfigMap", "unknown", `"everybody" is neither`)
	env.configMap(t, "large", v1alpha1.ShareChildren, strings.Repeat("a", 1<<20-16))
	env.awaitWarning(t, "ConfigMap", "large", "a shared object may have at most 1024 KiB")
	env.patch(t, "kube-root-ca.crt", `{"metadata":{"labels":{"berth.dev/share":"children"}}}`)
	env.awaitWarning(t, "ConfigMap", "kube-root-ca.crt", "metadata.name")
	env.configMap(t, "good", v1alpha1.ShareChildren, "1")
	env.shared(t, "Children good 1")

	config := syncer.AsAccount(env.cluster.Config(), env.space)
	config.ContentType, config.AcceptContentTypes = "", ""
	account, err := client.New(config, client.Options{Scheme: resources.Scheme()})
	if err != nil {
		t.Fatal(err)
	}
	other := newSharingEnv(t, "sharer-other")
	elsewhere := stale.DeepCopy()
	elsewhere.ObjectMeta = metav1.ObjectMeta{Namespace: other.space.HostNamespace(), Name: "shared-00"}
	for what, err := range map[string]error{
		"write": account.Create(t.Context(), elsewhere), "read": account.List(t.Context(), &v1alpha1.SharedObjectList{}, client.InNamespace(other.space.HostNamespace())),
		"read all": account.List(t.Context(), &v1alpha1.SharedObjectList{}),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s in another namespace: %v", what, err)
		}
	}
}

// S7, H8: what is no longer shared disappears, although the host refuses the first requests of a syncer that was started again.
func TestASyncerUnsharesWhenTheHostKnowsItsRightsLater(t *testing.T) {
	env := newSharingEnv(t, "sharer-late")
	env.begin(nil)
	env.configMap(t, "one", v1alpha1.ShareChildren, "1")
	env.shared(t, "Children one 1")
	if err := env.kill(); err != nil {
		t.Fatal(err)
	}
	env.patch(t, "one", `{"metadata":{"labels":{"berth.dev/share":null}}}`)
	var refused atomic.Int32
	env.begin(func(c call, send func() (*http.Response, error)) (*http.Response, error) {
		if aboutShared(c) && refused.Add(1) <= 2 {
			return answer(http.StatusForbidden, metav1.StatusReasonForbidden)(c)
		}
		return send()
	})
	env.shared(t)
}

// Q1: a space shares as many objects as there are names.
func TestASpaceSharesALimitedNumberOfObjects(t *testing.T) {
	env := newSharingEnv(t, "sharer-many")
	env.begin(nil)
	for i := range 257 {
		env.configMap(t, fmt.Sprintf("c-%03d", i), v1alpha1.ShareChildren, "")
	}
	count := func(ctx context.Context) (int, error) {
		list := &v1alpha1.SharedObjectList{}
		err := env.List(ctx, list, client.InNamespace(env.space.HostNamespace()))
		return len(list.Items), err
	}
	testhost.Eventually(t, "share 256", func(ctx context.Context) error {
		if n, err := count(ctx); err != nil || n != 256 {
			return fmt.Errorf("%d are shared (%w)", n, err)
		}
		events, err := env.virtual.CoreV1().Events("default").List(ctx, metav1.ListOptions{FieldSelector: "reason=" + engine.ReasonForbids})
		if err != nil || len(events.Items) == 0 || !strings.Contains(events.Items[0].Message, "at most 256 objects") {
			return fmt.Errorf("the events are %v (%w)", events.Items, err)
		}
		return nil
	})
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcesyncs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/client-go/metadata"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/testcrd"
	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/syncer/declaration"
)

var (
	errHost    = errors.New("the host can't be asked")
	errMissing = errors.New("the host has no policy")
)

// env are syncs of the test's host, and what is to go wrong.
type env struct {
	t     *testing.T
	s     *Syncs
	host  client.WithWatch
	group string
	now   time.Time

	share    map[string]string // by the name of a definition, with which tenant it is not shared; "unknown" and "no" mean all
	secure   map[string]func() error
	unread   map[string]error // of definitions
	unready  map[string]error
	undo     error      // of Declare
	declared [][]string // by calls of Declare
	statuses int        // that were written
	changed  []string   // what was reported
}

func newEnv(t *testing.T) *env {
	t.Helper()
	e := &env{
		t: t, group: rand.String(8) + ".example.com", now: time.Now(), share: map[string]string{}, secure: map[string]func() error{}, unread: map[string]error{}, unready: map[string]error{},
	}
	e.s = New(Options{
		Forces: func(name string) (forced, known bool) { return e.share[name] != "no", e.share[name] != "unknown" },
		ForcedIn: func(space, name string) (forced, known bool) {
			return e.share[name] != "no" && e.share[name] != space, e.share[name] != "unknown"
		},
		Secure: func(_ context.Context, d *declaration.Declaration) error {
			if d.FromHost {
				t.Errorf("%s from the host is secured", d.Name)
			}
			if secure := e.secure[d.Name]; secure != nil {
				return secure()
			}
			return nil
		},
		Missing: func(err error) bool { return errors.Is(err, errMissing) },
		Declare: func(all []*declaration.Declaration) error {
			if e.undo != nil {
				return e.undo
			}
			e.declared = append(e.declared, names(all))
			return nil
		},
		DeclaredReady: func(name string) error { return e.unready[name] },
		Logger:        klog.Background(),
	})
	var err error
	if e.s.objects, err = metadata.NewForConfig(theHost.Config()); err != nil {
		t.Fatal(err)
	}
	e.s.listed[listOfSyncs], e.s.listed[listOfDefinitions] = true, true
	e.s.host = hostClient(t)
	e.host = interceptor.NewClient(hostClient(t), interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, o client.Object, options ...client.GetOption) error {
			if err := e.unread[key.Name]; err != nil {
				return err
			}
			return c.Get(ctx, key, o, options...)
		},
		SubResourcePatch: func(ctx context.Context, c client.Client, subResource string, o client.Object, patch client.Patch, options ...client.SubResourcePatchOption) error {
			e.statuses++
			return c.SubResource(subResource).Patch(ctx, o, patch, options...)
		},
	})
	return e
}

// sync returns a sync of a new definition of the host, as if it had been watched.
func (e *env) sync(kind string, direction v1alpha1.ResourceSyncDirection) *v1alpha1.ResourceSync {
	e.t.Helper()
	crd := testcrd.New(e.group, kind, &apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{
		"spec": {Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{"size": {Type: "string"}, "color": {Type: "string"}}},
	}})
	if direction == v1alpha1.SyncFromHost {
		crd.Spec.Scope = apiextensionsv1.ClusterScoped
	}
	if err := e.host.Create(e.t.Context(), crd); err != nil {
		e.t.Fatal(err)
	}
	testhost.Eventually(e.t, "the definition is established", func(ctx context.Context) error {
		if err := e.host.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
			return err
		}
		if !slices.ContainsFunc(crd.Status.Conditions, func(c apiextensionsv1.CustomResourceDefinitionCondition) bool {
			return c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue
		}) {
			return fmt.Errorf("its status is %+v", crd.Status)
		}
		return nil
	})
	is := &v1alpha1.ResourceSync{
		ObjectMeta: metav1.ObjectMeta{Name: crd.Name, UID: types.UID(kind), Generation: 1},
		Spec: v1alpha1.ResourceSyncSpec{
			Direction: direction, Version: "v1", Fields: []v1alpha1.SyncedField{{Path: "spec.size"}}, Tenants: []v1alpha1.CRDShareTenants{{Selector: &metav1.LabelSelector{}}},
		},
	}
	e.s.syncs[is.Name], e.s.versions[is.Name] = is, crd.ResourceVersion
	return is
}

// change changes a sync, as if that had been watched.
func (e *env) change(is *v1alpha1.ResourceSync, change func(*v1alpha1.ResourceSync)) {
	is = e.s.syncs[is.Name].DeepCopy()
	change(is)
	is.Generation++
	e.s.syncs[is.Name] = is
}

// update updates once, a moment later.
func (e *env) update() (complete bool, pause time.Duration) {
	e.t.Helper()
	e.changed = nil
	e.now = e.now.Add(time.Millisecond)
	return e.s.update(e.t.Context(), e.host, e.now, true, func(space string) { e.changed = append(e.changed, space) })
}

// has compares what a space has.
func (e *env) has(what, space string, want ...string) {
	e.t.Helper()
	if got := names(e.s.Of(space)); !slices.Equal(got, want) {
		e.t.Errorf("%s: %s has %q, want %q", what, space, got, want)
	}
}

func space(name, tenant string) *v1alpha1.Space {
	return &v1alpha1.Space{
		ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{v1alpha1.AnnotationTenantLabels: `{"is":"` + tenant + `"}`}},
		Spec:       v1alpha1.SpaceSpec{TenantName: tenant},
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package resourcesyncs

import (
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/syncer/declaration"
	"github.com/berth-dev/berth/translate"
)

// S2, C6: what names Services goes from the host when a space's sync ends, and nothing else does.
func TestObjectsThatNameServicesGoWithTheSync(t *testing.T) {
	t.Parallel()
	api, err := dynamic.NewForConfig(theHost.Config())
	if err != nil {
		t.Fatal(err)
	}
	const nobody = "unknown" // no space of this platform
	services := func(spec *v1alpha1.ResourceSyncSpec) {
		spec.Fields = []v1alpha1.SyncedField{{Path: "spec.size", Type: v1alpha1.FieldObject, Resource: "services"}}
	}
	for name, c := range map[string]struct {
		before, end func(e *env, is *v1alpha1.ResourceSync)
		left        []string
	}{
		"nothing ends": {left: []string{nobody, "solar"}},
		"another tenant": {
			end: func(e *env, is *v1alpha1.ResourceSync) {
				e.change(is, func(is *v1alpha1.ResourceSync) { is.Spec.Tenants[0].Names = []string{"wind"} })
			}, left: []string{nobody},
		},
		"no share": {
			end: func(e *env, is *v1alpha1.ResourceSync) { e.share[is.Name] = "no" }, left: []string{nobody},
		},
		"an invalid field": {
			end: func(e *env, is *v1alpha1.ResourceSync) {
				e.change(is, func(is *v1alpha1.ResourceSync) { is.Spec.Version = "v9" })
			}, left: []string{nobody},
		},
		"no policy": {
			end: func(e *env, is *v1alpha1.ResourceSync) {
				e.secure[is.Name] = func() error { return errMissing }
				e.now = e.now.Add(2 * recheck)
			}, left: []string{nobody},
		},
		"a host that can't be asked": {
			end: func(e *env, is *v1alpha1.ResourceSync) {
				e.secure[is.Name] = func() error { return errHost }
				e.now = e.now.Add(2 * recheck)
			}, left: []string{nobody, "solar"},
		},
		"a share that isn't known": {
			end: func(e *env, is *v1alpha1.ResourceSync) { e.share[is.Name] = "unknown" }, left: []string{nobody, "solar"},
		},
		"a start of the platform, before the host's objects are known": {
			before: func(e *env, is *v1alpha1.ResourceSync) { e.unready[is.Name] = errHost }, left: []string{nobody, "solar", "wind"},
		},
		"objects that name no Services": {
			before: func(_ *env, is *v1alpha1.ResourceSync) { is.Spec.Fields = []v1alpha1.SyncedField{{Path: "spec.size"}} },
			end: func(e *env, is *v1alpha1.ResourceSync) {
				e.change(is, func(is *v1alpha1.ResourceSync) { is.Spec.Tenants[0].Names = []string{"other"} })
			}, left: []string{nobody, "solar", "wind"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			is := e.sync("Gadget", v1alpha1.SyncToHost)
			services(&is.Spec)
			is.Spec.Tenants = []v1alpha1.CRDShareTenants{{Names: []string{"solar"}}}
			if c.before != nil {
				c.before(e, is)
			}
			e.s.Observe(space("solar", "solar"))
			e.s.Observe(space("wind", "wind"))
			d := compiled(t, e, is)
			objects := api.Resource(d.GVR)
			for _, of := range []string{"solar", "wind", nobody} {
				for _, namespace := range []string{(translate.Space{Name: of}).HostNamespace(), metav1.NamespaceDefault} {
					o := d.New()
					o.SetUID("of-the-tenant")
					o.SetNamespace("default")
					o.SetName(of)
					meta := (translate.Space{Name: of}).ObjectMeta(o, declaration.NameLimit)
					o.SetUID("")
					o.SetName(meta.Name)
					o.SetNamespace(namespace)
					o.SetLabels(meta.Labels)
					o.SetAnnotations(meta.Annotations)
					if err := client.IgnoreAlreadyExists(e.host.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}})); err != nil {
						t.Fatal(err)
					}
					if _, err := objects.Namespace(namespace).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
						t.Fatal(err)
					}
				}
			}
			e.update()
			if c.end != nil {
				c.end(e, is)
				e.update()
			}
			all, err := objects.List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			var left []string
			others := 0 // of the host's admin
			for _, o := range all.Items {
				if o.GetNamespace() == metav1.NamespaceDefault {
					others++
				} else {
					left = append(left, o.GetLabels()[translate.LabelSpace])
				}
			}
			if others != 3 {
				t.Errorf("%d of 3 objects are left that are not in the spaces' namespaces", others)
			}
			if slices.Sort(left); !slices.Equal(left, slices.Sorted(slices.Values(c.left))) {
				t.Errorf("the host has objects of %q, want %q", left, c.left)
			}
		})
	}
}

// compiled returns the declaration of a sync.
func compiled(t *testing.T, e *env, is *v1alpha1.ResourceSync) *declaration.Declaration {
	t.Helper()
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := e.host.Get(t.Context(), client.ObjectKey{Name: is.Name}, crd); err != nil {
		t.Fatal(err)
	}
	d, errs := declaration.Compile(is, crd)
	if len(errs) > 0 {
		t.Fatal(errs.ToAggregate())
	}
	return d
}

// S2: before a Service leads out of a space, nothing on the host names Services of the space but what its syncer knows of.
func TestObjectsThatNameServicesAreWithdrawn(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	api, err := dynamic.NewForConfig(theHost.Config())
	if err != nil {
		t.Fatal(err)
	}
	is := e.sync("Gadget", v1alpha1.SyncToHost)
	is.Spec.Fields = []v1alpha1.SyncedField{{Path: "spec.size", Type: v1alpha1.FieldObject, Resource: "services"}}
	d := compiled(t, e, is)
	const withdrawn, other = "withdrawn", "not-withdrawn"
	left := func(what string, want ...string) {
		t.Helper()
		all, err := api.Resource(d.GVR).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, o := range all.Items {
			names = append(names, o.GetLabels()[translate.LabelSpace])
		}
		if slices.Sort(names); !slices.Equal(names, want) {
			t.Errorf("%s: the host has objects of %q, want %q", what, names, want)
		}
	}
	create := func(space string, finalizers ...string) {
		t.Helper()
		v := d.New()
		v.SetUID("of-the-tenant")
		v.SetNamespace("default")
		v.SetName("web")
		o, errs := d.ToHost(t.Context(), translate.Space{Name: space}, v, nil)
		if len(errs) > 0 {
			t.Fatal(errs.ToAggregate())
		}
		o.SetFinalizers(finalizers)
		if err := client.IgnoreAlreadyExists(e.host.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: o.GetNamespace()}})); err != nil {
			t.Fatal(err)
		}
		if _, err := api.Resource(d.GVR).Namespace(o.GetNamespace()).Create(t.Context(), o, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	create(other)
	create(withdrawn)

	if err := e.s.Withdraw(t.Context(), withdrawn, nil); err != nil {
		t.Error(err)
	}
	left("of a ResourceSync that never began", other, withdrawn)
	delete(e.s.listed, listOfSyncs)
	e.s.follows(func() {}) // the first list has it
	if err := e.s.Withdraw(t.Context(), withdrawn, nil); err == nil {
		t.Error("before the ResourceSyncs are known, a Service may lead out")
	}
	e.s.listed[listOfSyncs] = true
	if err := e.s.Withdraw(t.Context(), withdrawn, []string{d.Name}); err != nil {
		t.Error(err)
	}
	left("while the space syncs them", other, withdrawn)
	e.unread[is.Name] = errHost
	e.s.host = e.host
	if err := e.s.Withdraw(t.Context(), withdrawn, nil); err == nil {
		t.Error("while the host can't be asked, a Service may lead out")
	}
	delete(e.unread, is.Name)
	if err := e.s.Withdraw(t.Context(), withdrawn, nil); err != nil {
		t.Error(err)
	}
	left("of a sync that the space doesn't have", other)

	create(withdrawn, "example.com/serves")
	if err := e.s.Withdraw(t.Context(), withdrawn, nil); err == nil {
		t.Error("while a controller holds an object, a Service may lead out")
	}
	patch := []byte(`{"metadata":{"finalizers":null}}`)
	at := api.Resource(d.GVR).Namespace((translate.Space{Name: withdrawn}).HostNamespace())
	if _, err := at.Patch(t.Context(), (translate.Space{Name: withdrawn}).HostName("default", "web", declaration.NameLimit), types.MergePatchType, patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	create(withdrawn)
	e.s.follows(func() { delete(e.s.syncs, is.Name) })
	if err := e.s.Withdraw(t.Context(), withdrawn, nil); err != nil {
		t.Error(err)
	}
	left("of a ResourceSync that is gone", other)
}

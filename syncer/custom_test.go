// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/syncer/declaration"
	"github.com/berth-dev/berth/syncer/resources"
)

// tickets is a definition of a resource that a controller of the host would act on.
func tickets(group string) *apiextensionsv1.CustomResourceDefinition {
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	object := func(properties map[string]apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
		return apiextensionsv1.JSONSchemaProps{Type: "object", Properties: properties}
	}
	schema := object(map[string]apiextensionsv1.JSONSchemaProps{
		"spec":   object(map[string]apiextensionsv1.JSONSchemaProps{"secret": text, "parent": text, "pods": {Type: "object", XPreserveUnknownFields: ptr.To(true)}, "note": text, "backend": text}),
		"status": {Type: "object", XPreserveUnknownFields: ptr.To(true)},
	})
	return &apiextensionsv1.CustomResourceDefinition{
		ObjectMeta: metav1.ObjectMeta{Name: "tickets." + group},
		Spec: apiextensionsv1.CustomResourceDefinitionSpec{
			Group: group, Scope: apiextensionsv1.NamespaceScoped,
			Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: "tickets", Singular: "ticket", Kind: "Ticket", ListKind: "TicketList"},
			Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
				Name: "v1", Served: true, Storage: true, Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &schema},
				Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
			}},
		},
	}
}

// customEnv has clients of both sides that know all kinds.
type customEnv struct {
	*testEnv
	d               *declaration.Declaration
	inSpace, atHost client.Client
}

// declared returns the environment of a space of which tickets are synced.
func declared(t *testing.T, name string) *customEnv {
	t.Helper()
	return declaredWith(t, name, v1alpha1.SyncedField{Path: "spec.secret", Type: v1alpha1.FieldReturnedSecret},
		v1alpha1.SyncedField{Path: "spec.parent", Type: v1alpha1.FieldObject}, v1alpha1.SyncedField{Path: "spec.pods", Type: v1alpha1.FieldSelector})
}

// declaredWith returns the environment of a space of which these fields of tickets are synced.
func declaredWith(t *testing.T, name string, fields ...v1alpha1.SyncedField) *customEnv {
	t.Helper()
	env := &customEnv{testEnv: newEnv(t, name)}
	var err error
	if env.inSpace, err = client.New(env.toPlane(), client.Options{Scheme: resources.Scheme()}); err != nil {
		t.Fatal(err)
	}
	if env.atHost, err = client.New(env.cluster.Config(), client.Options{Scheme: resources.Scheme()}); err != nil {
		t.Fatal(err)
	}
	spec := v1alpha1.ResourceSyncSpec{Direction: v1alpha1.SyncToHost, Version: "v1", Status: []string{"status.phase"}, Fields: fields}
	env.d = env.declare(env.inSpace, env.atHost, tickets(name+".example.com"), spec)
	if err := isolation.Apply(t.Context(), env.atHost, env.space, nil, isolation.AlsoSyncing(isolation.SyncRule(env.d))); err != nil {
		t.Fatal(err)
	}
	return env
}

// declare adds a resource to what the next syncer syncs. Both sides have its definition then, and the host its policy; the space's account has
// no right to it yet.
func (env *testEnv) declare(inSpace, atHost client.Client, crd *apiextensionsv1.CustomResourceDefinition, spec v1alpha1.ResourceSyncSpec) *declaration.Declaration {
	env.t.Helper()
	meta := metav1.ObjectMeta{Name: crd.Name, UID: types.UID("of-" + env.space.Name)}
	d, errs := declaration.Compile(&v1alpha1.ResourceSync{ObjectMeta: meta, Spec: spec}, crd)
	if len(errs) > 0 {
		env.t.Fatal(errs.ToAggregate())
	}
	env.declared = append(env.declared, d)
	for side, c := range map[string]client.Client{"space": inSpace, "host": atHost} {
		env.play([]step{
			{"define " + crd.Name + " in the " + side, func(ctx context.Context) error { return client.IgnoreAlreadyExists(c.Create(ctx, crd.DeepCopy())) }},
			{"serve " + crd.Name + " in the " + side, func(ctx context.Context) error { return c.List(ctx, ticketsOf(d)) }},
		})
	}
	env.t.Cleanup(func() { _ = atHost.Delete(context.WithoutCancel(env.t.Context()), crd) })
	if err := isolation.InstallSync(env.t.Context(), atHost, d); err != nil {
		env.t.Fatal(err)
	}
	return d
}

// watchDeclared watches the host's objects of declarations, and waits until they are known.
func watchDeclared(ctx context.Context, host *syncer.Host, all []*declaration.Declaration) error {
	if len(all) == 0 {
		return nil
	}
	if err := host.Declare(all); err != nil {
		return err
	}
	for _, d := range all {
		if err := wait.PollUntilContextCancel(ctx, 10*time.Millisecond, true, func(context.Context) (bool, error) { return host.DeclaredReady(d.Name) == nil, nil }); err != nil {
			return err
		}
	}
	return nil
}

// ticketsOf returns an empty list of a declaration's objects.
func ticketsOf(d *declaration.Declaration) *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(d.Kind.GroupVersion().WithKind(d.Kind.Kind + "List"))
	return list
}

// ticket returns a ticket of the namespace default with a spec.
func (env *customEnv) ticket(name string, spec map[string]any) *unstructured.Unstructured {
	o := env.d.New()
	o.SetNamespace("default")
	o.SetName(name)
	o.Object["spec"] = runtime.DeepCopyJSON(spec)
	return o
}

// put creates or changes a ticket.
func (env *customEnv) put(name string, spec map[string]any) step {
	return step{"write the ticket " + name, func(ctx context.Context) error {
		o := env.ticket(name, spec)
		err := env.inSpace.Create(ctx, o.DeepCopy())
		if !apierrors.IsAlreadyExists(err) {
			return err
		}
		have := env.d.New()
		if err := env.inSpace.Get(ctx, client.ObjectKeyFromObject(o), have); err != nil {
			return err
		}
		have.Object["spec"] = o.Object["spec"]
		return env.inSpace.Update(ctx, have)
	}}
}

// hostTicket waits until the host's ticket is as check says.
func (env *customEnv) hostTicket(name, what string, check func(host *unstructured.Unstructured) error) step {
	return step{"see on the host: " + what, func(ctx context.Context) error {
		host := env.d.New()
		key := client.ObjectKey{Namespace: env.space.HostNamespace(), Name: env.space.HostName("default", name, declaration.NameLimit)}
		if err := env.atHost.Get(ctx, key, host); err != nil {
			return err
		}
		return check(host)
	}}
}

// write has the host write the Secret that returns, and the status that says so.
func (env *customEnv) write(ticket, name string, kind corev1.SecretType, data map[string][]byte) step {
	return step{"the host writes the Secret " + name, func(ctx context.Context) error {
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: env.space.HostNamespace(), Name: declaration.ReturnedName(env.d.Name, env.space, "default", name)}, Type: kind, Data: data,
		}
		if err := client.IgnoreNotFound(env.atHost.Delete(ctx, secret.DeepCopy())); err != nil {
			return err
		}
		if err := env.atHost.Create(ctx, secret); err != nil {
			return err
		}
		host := env.d.New()
		key := client.ObjectKey{Namespace: env.space.HostNamespace(), Name: env.space.HostName("default", ticket, declaration.NameLimit)}
		if err := env.atHost.Get(ctx, key, host); err != nil {
			return err
		}
		host.Object["status"] = map[string]any{"phase": fmt.Sprintf("%s of %s", kind, data)}
		return env.atHost.Status().Update(ctx, host)
	}}
}

// has waits until the space has a Secret of a type and with one value.
func (env *customEnv) has(name string, kind corev1.SecretType, key, value string) step {
	return step{"see the Secret " + name + " in the space", func(ctx context.Context) error {
		secret, err := env.virtual.CoreV1().Secrets("default").Get(ctx, name, metav1.GetOptions{})
		if err == nil && (secret.Type != kind || string(secret.Data[key]) != value) {
			err = fmt.Errorf("it is %s, %q", secret.Type, secret.Data)
		}
		return err
	}}
}

// hostSecret waits until the host has the Secret that returns, or has it no more.
func (env *customEnv) hostSecret(name string, there bool) step {
	return step{fmt.Sprintf("the Secret %s is on the host: %t", name, there), func(ctx context.Context) error {
		_, err := env.host.CoreV1().Secrets(env.space.HostNamespace()).Get(ctx, declaration.ReturnedName(env.d.Name, env.space, "default", name), metav1.GetOptions{})
		if there {
			return err
		}
		if err == nil {
			return errors.New("it is still there")
		}
		return ignoreNotFound(err)
	}}
}

// C6: names and selectors of declared fields are the space's own on the host, and the Secrets that return live as long as something names them.
func TestDeclaredFieldsAreTranslated(t *testing.T) {
	t.Parallel()
	env := declared(t, "declared")
	env.begin(nil)
	pem := map[string][]byte{corev1.TLSCertKey: []byte("cert"), corev1.TLSPrivateKeyKey: []byte("key")}
	env.play([]step{
		env.put("one", map[string]any{"secret": "s", "parent": "two", "pods": map[string]any{"matchLabels": map[string]any{"app": "web"}}}),
		env.hostTicket("one", "translated", func(host *unstructured.Unstructured) error {
			parent, _, err := unstructured.NestedString(host.Object, "spec", "parent")
			selector, _, _ := unstructured.NestedSlice(host.Object, "spec", "pods", "matchExpressions")
			if want := env.space.HostName("default", "two", declaration.NameLimit); err != nil || parent != want || len(selector) != 2 {
				return fmt.Errorf("it is %v, want the parent %s", host.Object["spec"], want)
			}
			return nil
		}),
		env.write("one", "s", corev1.SecretTypeOpaque, map[string][]byte{"a": []byte("1")}),
		env.has("s", corev1.SecretTypeOpaque, "a", "1"),
		// The type of a Secret is immutable.
		env.write("one", "s", corev1.SecretTypeTLS, pem),
		env.has("s", corev1.SecretTypeTLS, corev1.TLSCertKey, "cert"),
		// A Secret of a type that would mean something to the space's controllers is a plain one there.
		env.write("one", "s", "example.com/other", map[string][]byte{"a": []byte("2")}),
		env.has("s", corev1.SecretTypeOpaque, "a", "2"),

		env.put("two", map[string]any{"secret": "s"}),
		env.hostTicket("two", "another that names the Secret", func(*unstructured.Unstructured) error { return nil }),
		env.put("one", map[string]any{"secret": "t"}),
		env.hostTicket("one", "changed", func(host *unstructured.Unstructured) error {
			if spec, want := host.Object["spec"].(map[string]any), declaration.ReturnedName(env.d.Name, env.space, "default", "t"); spec["secret"] != want || spec["parent"] != nil || spec["pods"] != nil {
				return fmt.Errorf("it is %v, want only the Secret %s", spec, want)
			}
			return nil
		}),
		env.hostSecret("s", true), // the other one names it
		env.put("two", map[string]any{"secret": "u"}),
		env.hostSecret("s", false),
		env.write("one", "t", corev1.SecretTypeOpaque, map[string][]byte{"a": []byte("3")}),
		env.has("t", corev1.SecretTypeOpaque, "a", "3"),
		{"delete a ticket", func(ctx context.Context) error {
			return client.IgnoreNotFound(env.inSpace.Delete(ctx, env.ticket("one", nil)))
		}},
		env.hostSecret("t", false),
		env.has("t", corev1.SecretTypeOpaque, "a", "3"),
	})
}

// C6: host objects stay when the space has the definition no longer, and are as the space's again when it has.
func TestHostObjectsOutliveTheDefinitionInTheSpace(t *testing.T) {
	t.Parallel()
	env := declared(t, "undefined")
	env.begin(nil)
	var uid string
	env.play([]step{
		env.put("one", map[string]any{"parent": "a"}),
		env.hostTicket("one", "made", func(host *unstructured.Unstructured) error { uid = string(host.GetUID()); return nil }),
	})
	// As if a share were gone: the objects are still stored. A tenant can't do this, since the definition is forced.
	env.play([]step{{"serve tickets no more in the space", func(ctx context.Context) error { return env.serve(ctx, false) }},
		{"see that they are not served", func(ctx context.Context) error {
			if err := env.inSpace.List(ctx, ticketsOf(env.d)); err == nil {
				return errors.New("they are still served")
			}
			return nil
		}}})
	if err := env.kill(); err != nil {
		t.Fatal(err)
	}
	env.begin(nil)
	env.play([]step{
		{"touch the host object", func(ctx context.Context) error {
			host := env.d.New()
			if err := env.atHost.Get(ctx, client.ObjectKey{Namespace: env.space.HostNamespace(), Name: env.space.HostName("default", "one", declaration.NameLimit)}, host); err != nil {
				return err
			}
			host.Object["status"] = map[string]any{"phase": "touched"}
			return env.atHost.Status().Update(ctx, host)
		}},
		{"serve tickets again", func(ctx context.Context) error { return env.serve(ctx, true) }},
		{"see the status in the space", func(ctx context.Context) error {
			v := env.d.New()
			if err := env.inSpace.Get(ctx, client.ObjectKey{Namespace: "default", Name: "one"}, v); err != nil {
				return err
			}
			if phase, _, _ := unstructured.NestedString(v.Object, "status", "phase"); phase != "touched" {
				return fmt.Errorf("it is %q", phase)
			}
			return nil
		}},
		env.hostTicket("one", "the same object", func(host *unstructured.Unstructured) error {
			if string(host.GetUID()) != uid {
				return errors.New("it is another one")
			}
			return nil
		}),
	})
}

// serve says whether the space serves tickets.
func (env *customEnv) serve(ctx context.Context, served bool) error {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	if err := env.inSpace.Get(ctx, client.ObjectKey{Name: env.d.Name}, crd); err != nil {
		return err
	}
	crd.Spec.Versions[0].Served = served
	return env.inSpace.Update(ctx, crd)
}

// L3: a Secret that returns is read when the host object has changed, however often the tenant changes its own.
func TestHostileChangesOfDeclaredObjectsDoNotReadTheHost(t *testing.T) {
	t.Parallel()
	env := declared(t, "reread")
	var reads atomic.Int64
	env.begin(func(c call, send func() (*http.Response, error)) (*http.Response, error) {
		if c.to == toHost && c.Method == http.MethodGet && strings.Contains(c.URL.Path, "/secrets/"+env.space.Name+declaration.ReturnedMark) {
			reads.Add(1)
		}
		return send()
	})
	env.play([]step{
		env.put("one", map[string]any{"secret": "s"}),
		env.hostTicket("one", "made", func(*unstructured.Unstructured) error { return nil }),
		env.write("one", "s", corev1.SecretTypeOpaque, map[string][]byte{"a": []byte("1")}),
		env.has("s", corev1.SecretTypeOpaque, "a", "1"),
	})
	env.idle(t)
	before := reads.Load()
	for i := range 20 {
		v := env.d.New()
		v.SetNamespace("default")
		v.SetName("one")
		if err := env.inSpace.Patch(t.Context(), v, client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"n":"%d"}}}`, i))); err != nil {
			t.Fatal(err)
		}
	}
	// A change of a declared field comes after them, and is one of the host object.
	env.play([]step{
		env.put("one", map[string]any{"secret": "s", "parent": "a"}),
		env.hostTicket("one", "changed", func(host *unstructured.Unstructured) error {
			if parent, _, _ := unstructured.NestedString(host.Object, "spec", "parent"); parent == "" {
				return errors.New("it has no parent")
			}
			return nil
		}),
	})
	env.idle(t)
	if before == 0 || reads.Load() > before+2 {
		t.Errorf("the Secret was read %d times, and %d times after 21 changes of the tenant, want at most 2 more", before, reads.Load()-before)
	}
}

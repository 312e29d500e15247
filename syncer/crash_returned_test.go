// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/syncer/declaration"
	"github.com/berth-dev/berth/syncer/resources"
)

// declarePasses declares passes, for which Secrets return, and adds their row.
func (w *crashWalk) declarePasses(group string) {
	crd := tickets("pass." + group)
	crd.Name = passes + ".pass." + group
	crd.Spec.Names.Plural, crd.Spec.Names.Singular, crd.Spec.Names.Kind, crd.Spec.Names.ListKind = passes, "pass", "Pass", "PassList"
	w.returning = w.declare(w.inSpace, w.onHost, crd, v1alpha1.ResourceSyncSpec{
		Direction: v1alpha1.SyncToHost, Version: "v1", Status: []string{"status.phase"},
		Fields: []v1alpha1.SyncedField{{Path: "spec.note"}, {Path: "spec.secret", Type: v1alpha1.FieldReturnedSecret}},
	})
	w.rows = append(w.rows, crashRow{
		name: w.returning.Name, list: func() client.ObjectList { return ticketsOf(w.returning) },
		make: func(*crashWalk, string) client.Object { return w.returning.New() },
		set: func(w *crashWalk, o client.Object, revision int) { // every other one names another Secret
			setNote(w, o, revision)
			if err := unstructured.SetNestedField(o.(*unstructured.Unstructured).Object, fmt.Sprintf("%s-%d", o.GetName(), revision%2), "spec", "secret"); err != nil {
				panic(err) // the spec is not an object, which the definition says it is
			}
		},
		// On the host, the Secret has its name there.
		fact: func(o client.Object) string {
			secret := secretOf(o)
			if o.GetNamespace() != w.space.HostNamespace() {
				secret = declaration.ReturnedName(w.returning.Name, w.space, o.GetNamespace(), secret)
			}
			return fmt.Sprintf("%s with %s", noteOf(o), secret)
		},
	})
}

// issue writes the Secret of a pass on the host, as a controller does that notices when the pass names it no longer. issued is false then.
func (w *crashWalk) issue(ctx context.Context, pass *unstructured.Unstructured) (issued bool, err error) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: pass.GetNamespace(), Name: secretOf(pass)}, Data: map[string][]byte{"revision": []byte(noteOf(pass))},
	}
	err = w.onHost.Create(ctx, secret.DeepCopy())
	if apierrors.IsAlreadyExists(err) {
		err = w.onHost.Update(ctx, secret.DeepCopy())
	}
	if err != nil {
		return false, client.IgnoreNotFound(err) // the syncer has deleted it in the meantime
	}
	now := w.returning.New()
	err = w.onHost.Get(ctx, client.ObjectKeyFromObject(pass), now)
	if apierrors.IsNotFound(err) || err == nil && secretOf(now) != secret.Name {
		return false, client.IgnoreNotFound(w.onHost.Delete(ctx, secret))
	}
	return err == nil, err
}

// compareReturned looks for the Secret of each pass, on both sides, and for others on the host.
func (w *crashWalk) compareReturned(d *crashDiff, inSpace, onHost map[string][]client.Object) {
	returned := map[string]bool{}
	for _, h := range onHost[resources.Secrets] {
		if strings.HasPrefix(h.GetName(), w.space.Name+declaration.ReturnedMark) {
			returned[h.GetName()] = true
		}
	}
	copies := map[client.ObjectKey]string{}
	for _, v := range inSpace[resources.Secrets] {
		copies[client.ObjectKeyFromObject(v)] = string(v.(*corev1.Secret).Data["revision"])
	}
	for _, v := range inSpace[w.returning.Name] {
		key := client.ObjectKey{Namespace: v.GetNamespace(), Name: secretOf(v)}
		name := declaration.ReturnedName(w.returning.Name, w.space, key.Namespace, key.Name)
		if !returned[name] {
			d.lost = append(d.lost, fmt.Sprintf("host Secret %s of %s", key, v.GetName()))
		}
		delete(returned, name)
		if revision, exists := copies[key]; !exists {
			d.lost = append(d.lost, fmt.Sprintf("Secret %s of %s", key, v.GetName()))
		} else if revision != noteOf(v) {
			d.different = append(d.different, fmt.Sprintf("Secret %s: %q, want %q", key, revision, noteOf(v)))
		}
	}
	for name := range returned {
		d.leaked = append(d.leaked, "host Secret "+name)
	}
}

func secretOf(o client.Object) string { return textOf(o, "spec", "secret") }

// S7, C6: a syncer that crashes at each write that it comes to, for an object for which a Secret returns, leaves no Secret behind on the
// host, and loses none.
func TestReturnedSecretsSurviveACrashAtEveryWrite(t *testing.T) {
	t.Parallel()
	for _, mode := range []crashMode{unsent, unanswered} {
		t.Run(string(mode), func(t *testing.T) {
			t.Parallel()
			env := declared(t, "returned-"+string(mode))
			var mu sync.Mutex
			crashes := map[string]int{}
			env.supervise(func(run *syncerRun) rule {
				return run.crashAt(mode, func(c call) bool {
					if strings.HasSuffix(c.URL.Path, "/status") || !strings.Contains(c.URL.Path, "/tickets") && !strings.Contains(c.URL.Path, "/secrets") {
						return false
					}
					mu.Lock()
					defer mu.Unlock()
					crashes[c.String()]++
					return crashes[c.String()] == 1
				})
			}, func() bool { return false })
			data := func(value string) map[string][]byte { return map[string][]byte{"a": []byte(value)} }
			made := env.hostTicket("one", "made", func(*unstructured.Unstructured) error { return nil })
			names := func(secret string) step {
				return env.hostTicket("one", "named", func(host *unstructured.Unstructured) error {
					if want := declaration.ReturnedName(env.d.Name, env.space, "default", secret); secretOf(host) != want {
						return errors.New("it names another Secret")
					}
					return nil
				})
			}
			env.play([]step{
				env.put("one", map[string]any{"secret": "s"}), made,
				env.write("one", "s", corev1.SecretTypeOpaque, data("1")), env.has("s", corev1.SecretTypeOpaque, "a", "1"),
				env.write("one", "s", corev1.SecretTypeOpaque, data("2")), env.has("s", corev1.SecretTypeOpaque, "a", "2"),
				env.hostSecret("s", true),
				env.put("one", map[string]any{"secret": "t"}), names("t"), env.hostSecret("s", false),
				env.write("one", "t", corev1.SecretTypeOpaque, data("3")), env.has("t", corev1.SecretTypeOpaque, "a", "3"),
				env.hostSecret("t", true),
				{"delete the ticket", func(ctx context.Context) error {
					return client.IgnoreNotFound(env.inSpace.Delete(ctx, env.ticket("one", nil)))
				}},
				env.hostSecret("t", false), env.has("s", corev1.SecretTypeOpaque, "a", "2"), env.has("t", corev1.SecretTypeOpaque, "a", "3"),
			})
			mu.Lock()
			defer mu.Unlock()
			if len(crashes) != 7 { // creations of two Secrets are alike
				t.Errorf("it crashed at %v, want 3 writes of the ticket on the host, 2 of Secrets there, and 2 in the space", crashes)
			}
		})
	}
}

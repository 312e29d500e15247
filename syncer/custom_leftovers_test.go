// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"errors"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/syncer/declaration"
)

// C6, X6: a syncer that ends after it deleted an object on the host, and before the Secret that returned for it, leaves none behind.
func TestASecretThatReturnedGoesAfterACrash(t *testing.T) {
	t.Parallel()
	env := declared(t, "leftovers")
	env.begin(nil)
	data := map[string][]byte{"a": []byte("1")}
	there := func(*unstructured.Unstructured) error { return nil }
	env.play([]step{
		env.put("gone", map[string]any{"secret": "left"}), env.hostTicket("gone", "there", there),
		env.put("stays", map[string]any{"secret": "kept"}), env.hostTicket("stays", "there", there),
		env.write("gone", "left", corev1.SecretTypeOpaque, data), env.has("left", corev1.SecretTypeOpaque, "a", "1"),
		env.write("stays", "kept", corev1.SecretTypeOpaque, data), env.has("kept", corev1.SecretTypeOpaque, "a", "1"),
	})
	if err := env.kill(); err != nil {
		t.Fatal(err)
	}
	// Another ResourceSync, which the space doesn't have now, has one, too.
	other := declaration.ReturnedName("others.example.com", env.space, "default", "left")
	must(t, env.host.CoreV1().Secrets(env.space.HostNamespace()).Create, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: other}})
	for _, o := range []struct {
		in client.Client
		at client.ObjectKey
	}{
		{env.inSpace, client.ObjectKey{Namespace: "default", Name: "gone"}},
		{env.atHost, client.ObjectKey{Namespace: env.space.HostNamespace(), Name: env.space.HostName("default", "gone", declaration.NameLimit)}},
	} {
		ticket := env.d.New()
		ticket.SetNamespace(o.at.Namespace)
		ticket.SetName(o.at.Name)
		if err := o.in.Delete(t.Context(), ticket); err != nil {
			t.Fatal(err)
		}
	}
	env.begin(nil)
	env.play([]step{
		env.hostSecret("left", false), env.hostSecret("kept", true),
		{"keep the Secret of another ResourceSync", func(ctx context.Context) error {
			if !env.run.syncer.Idle() {
				return errors.New("the syncer is busy")
			}
			_, err := env.host.CoreV1().Secrets(env.space.HostNamespace()).Get(ctx, other, metav1.GetOptions{})
			return err
		}},
	})
}

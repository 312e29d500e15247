// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/berth-dev/berth/host"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/vcluster/pki"
)

// X2: on a host without a policy about it, Berth writes and deletes its own Secrets, and neither reads nor changes somebody
// else's.
func TestASecretOfSomebodyElsesIsLeftAloneWithoutBeingRead(t *testing.T) {
	ctx := t.Context()
	starting, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	ca, err := pki.OpenCA(t.TempDir(), "test")
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := host.Start(starting, host.Options{Dir: t.TempDir(), Endpoint: "https://127.0.0.1:1", ServingCA: ca.PEM()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := cluster.Stop(context.WithoutCancel(ctx)); err != nil {
			t.Error(err)
		}
	})
	clients, err := kubernetes.NewForConfig(cluster.Config())
	if err != nil {
		t.Fatal(err)
	}
	secrets := clients.CoreV1().Secrets("default")
	get := func(t *testing.T, name string) *corev1.Secret {
		t.Helper()
		secret, err := secrets.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		return secret
	}
	ours := &Secrets{namespace: "default", platform: "berth", client: secrets, suffix: suffixKubeconfig}

	t.Run("its own is written, written again, and deleted", func(t *testing.T) {
		const name = "mine-kubeconfig"
		for _, kubeconfig := range []string{"a", "b"} {
			if err := ours.Write(ctx, "mine", []byte(kubeconfig)); err != nil {
				t.Fatal(err)
			}
			if got := get(t, name); string(got.Data["kubeconfig"]) != kubeconfig || string(got.Data["value"]) != kubeconfig || got.Labels[translate.LabelPlatform] != "berth" {
				t.Errorf("it has the data %q and the labels %v", got.Data, got.Labels)
			}
		}
		before := get(t, name)
		if err := ours.Write(ctx, "mine", []byte("b")); err != nil {
			t.Fatal(err)
		}
		if after := get(t, name); after.ResourceVersion != before.ResourceVersion {
			t.Error("it is stored again though nothing changed")
		}
		before.Data["kubeconfig"] = []byte("an admin's")
		if _, err := secrets.Update(ctx, before, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		if err := ours.Write(ctx, "mine", []byte("b")); err != nil || string(get(t, name).Data["kubeconfig"]) != "b" {
			t.Errorf("what an admin changed stays (%v)", err)
		}
		for range 2 { // it is repeatable
			if err := ours.Remove(ctx, "mine"); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := secrets.Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("it is left (%v)", err)
		}
	})

	t.Run("those of owners come and go with the owners", func(t *testing.T) { testOwners(t, secrets, "default") })

	for name, test := range map[string]struct {
		reason string
		secret corev1.Secret
		// typed is whether its type is that of Berth's. Where there is no policy, Berth would write such a one.
		typed bool
	}{
		"plain":    {"its type is another", corev1.Secret{}, false},
		"labelled": {"its type is another", corev1.Secret{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{labelKubeconfig: "labelled", translate.LabelPlatform: "berth"}}}, false},
		"other": {"it is another platform's", corev1.Secret{
			Type: typeKubeconfig, ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{labelKubeconfig: "other", translate.LabelPlatform: "second"}},
		}, true},
		"renamed": {"it is another space's", corev1.Secret{
			Type: typeKubeconfig, ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{labelKubeconfig: "else", translate.LabelPlatform: "berth"}},
		}, true},
	} {
		t.Run(name, func(t *testing.T) {
			test.secret.Name, test.secret.Data = name+"-kubeconfig", map[string][]byte{"kubeconfig": []byte("theirs")}
			made, err := secrets.Create(ctx, &test.secret, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if err := ours.Remove(ctx, name); err != nil {
				t.Error(err)
			}
			if !test.typed {
				if err := ours.Write(ctx, name, []byte("ours")); err == nil || !strings.Contains(err.Error(), "has another owner") {
					t.Errorf("%s: writing it: %v", test.reason, err)
				}
			}
			if now := get(t, made.Name); now.UID != made.UID || now.ResourceVersion != made.ResourceVersion {
				t.Errorf("%s: it was changed", test.reason)
			}
		})
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package shard_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/internal/testcrd"
	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/syncer/resources"
)

// C3, C5: the definition of a kind is forced on the spaces of which it is synced, and on no others, from the start that follows a change of
// what is synced. A shard doesn't start with a definition that spaces can't serve.
func TestTheDefinitionsOfSyncedKindsAreForced(t *testing.T) {
	crds, err := apiextensions.NewForConfig(theHost(t).Config())
	if err != nil {
		t.Fatal(err)
	}
	host := crds.ApiextensionsV1().CustomResourceDefinitions()
	crd := testcrd.New("snapshot.storage.k8s.io", "VolumeSnapshot", &apiextensionsv1.JSONSchemaProps{Type: "object"})
	crd.Annotations = map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: "unapproved, of a test"}
	if _, err := host.Create(t.Context(), crd, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = host.Delete(context.Background(), crd.Name, metav1.DeleteOptions{}) })
	testhost.Eventually(t, "serve the definition", func(ctx context.Context) (err error) {
		crd, err = host.Get(ctx, crd.Name, metav1.GetOptions{})
		for _, c := range crd.Status.Conditions {
			if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
				return nil
			}
		}
		return errors.Join(err, errors.New("it is not established"))
	})

	on, err := resources.Parse([]string{"volumesnapshots=on"})
	if err != nil {
		t.Fatal(err)
	}
	var of atomic.Pointer[resources.SyncOptions] // what is synced of the second space
	of.Store(&resources.SyncOptions{})
	c := config(t)
	c.Sync = syncer.Options{Sync: on}
	c.Settings = func(space string) shard.Settings {
		if space == "forces-all" {
			return shard.Settings{}
		}
		return shard.Settings{Sync: of.Load()}
	}
	s := start(t, c)
	stopped := false
	t.Cleanup(func() {
		if !stopped {
			stop(t, s)
		}
	})
	inSpace := func(space *shard.Space) (*apiextensionsv1.CustomResourceDefinition, error) {
		client, err := apiextensions.NewForConfig(space.Loopback())
		if err != nil {
			t.Fatal(err)
		}
		return client.ApiextensionsV1().CustomResourceDefinitions().Get(t.Context(), crd.Name, metav1.GetOptions{})
	}
	if got, err := inSpace(startSpace(t, s, "forces-all")); err != nil || !definitions.IsShared(got) {
		t.Errorf("the definition of a synced kind is %v (%v)", got, err)
	}
	if got, err := inSpace(startSpace(t, s, "forces-less")); !apierrors.IsNotFound(err) {
		t.Errorf("the definition of a kind that isn't synced is %v (%v)", got, err)
	}
	of.Store(&on)
	if err := s.Restart(t.Context(), "forces-less"); err != nil {
		t.Fatal(err)
	}
	if got, err := inSpace(s.Space("forces-less")); err != nil || !definitions.IsShared(got) {
		t.Errorf("the definition of a kind that is synced since is %v (%v)", got, err)
	}
	stop(t, s)
	stopped = true

	testhost.Eventually(t, "serve another version", func(ctx context.Context) error {
		have, err := host.Get(ctx, crd.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		other := *have.Spec.Versions[0].DeepCopy()
		other.Name, have.Spec.Versions[0].Served, have.Spec.Versions[0].Storage = "v2", false, false
		have.Spec.Versions = append(have.Spec.Versions[:1], other)
		_, err = host.Update(ctx, have, metav1.UpdateOptions{})
		return err
	})
	ctx, cancel := context.WithTimeout(t.Context(), testhost.Timeout)
	defer cancel()
	failed, err := shard.Start(ctx, c)
	if err == nil {
		stop(t, failed)
		t.Fatal("a shard starts without the version that it syncs")
	}
	for _, word := range []string{"sync of volumesnapshots", "version v1", "disable the resource"} {
		if !strings.Contains(err.Error(), word) {
			t.Errorf("%q doesn't say %q", err, word)
		}
	}
}

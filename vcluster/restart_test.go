// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/vcluster"
)

// T8
func TestARestartKeepsObjectsAndCredentials(t *testing.T) {
	gateway := newTestGateway(t)
	c := gateway.config(t, "again")
	p := gateway.start(t, c)
	made, err := clientset(t, p.Loopback()).CoreV1().ConfigMaps("default").Create(t.Context(),
		&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}, Data: map[string]string{"a": "b"}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	cert, robot := admin(t, p), bearer(t, p, token(t, p, "default", "robot"))
	ca, err := os.ReadFile(filepath.Join(c.Dir, "pki", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	stop(t, p)
	if _, err := clientset(t, cert).CoreV1().Namespaces().List(t.Context(), metav1.ListOptions{}); err == nil {
		t.Error("a stopped control plane answers")
	}

	gateway.start(t, c)
	kept, err := clientset(t, cert).CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})
	if err != nil {
		t.Fatalf("with the certificate from before: %v", err)
	}
	if kept.UID != made.UID || kept.ResourceVersion != made.ResourceVersion || kept.Data["a"] != "b" {
		t.Errorf("it was %v, it is %v", made, kept)
	}
	_, err = clientset(t, robot).CoreV1().Secrets("default").List(t.Context(), metav1.ListOptions{})
	if !apierrors.IsForbidden(err) {
		t.Errorf("with the token from before: %v, want it known and forbidden", err)
	}
	again, err := os.ReadFile(filepath.Join(c.Dir, "pki", "ca.crt"))
	if err != nil || !bytes.Equal(ca, again) {
		t.Errorf("the CA changed: %v", err)
	}
}

func TestStateIsForItsOwnerOnly(t *testing.T) {
	c := config(t, "modes")
	start(t, c)
	err := filepath.WalkDir(filepath.Join(c.Dir, "pki"), func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		if info.Mode().Perm()&0o077 != 0 {
			t.Errorf("%s has mode %s", path, info.Mode())
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestStartRefusesWhatUpstreamWouldEndTheProcessFor(t *testing.T) {
	good := config(t, "refused")
	for reason, change := range map[string]func(*vcluster.Config){
		"a range of fewer than eight addresses": func(c *vcluster.Config) { c.ServiceCIDR = "10.0.0.0/30" },
		"a range that is none":                  func(c *vcluster.Config) { c.ServiceCIDR = "10.0.0.0" },
		"host bits":                             func(c *vcluster.Config) { c.ServiceCIDR = "10.0.0.1/16" },
		"a service address outside the range":   func(c *vcluster.Config) { c.KubernetesServiceIP = []byte{192, 168, 0, 1} },
		"an endpoint without TLS":               func(c *vcluster.Config) { c.Endpoint = "http://127.0.0.1:1" },
		"an unknown controller":                 func(c *vcluster.Config) { c.Controllers = []string{"none"} },
		"no serving CA":                         func(c *vcluster.Config) { c.ServingCA = nil },
		"an admission plugin with upstream's name": func(c *vcluster.Config) {
			c.Admission = []vcluster.Admission{{Name: "ResourceQuota", New: nil}}
		},
	} {
		c := good
		c.Dir = t.TempDir()
		change(&c)
		if p, err := vcluster.Start(t.Context(), c); err == nil {
			t.Errorf("%s: it started", reason)
			stop(t, p)
		}
	}
}

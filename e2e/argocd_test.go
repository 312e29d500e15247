// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// X2: Argo CD finds each space as a cluster, by which it may do what the admins of the space may, until the space is deleted.
func TestArgoCDKnowsSpacesAsClusters(t *testing.T) {
	t.Parallel()
	up := sharedBerth(t)
	host, address := up.host(t), freeAddress(t)
	host.kubectl(t, "create", "namespace", "argocd")
	b := newBerth(filepath.Join(t.TempDir(), "data"))
	t.Cleanup(b.end)
	b.process = spawn(t, "serve", "--data-dir", b.dir, "--listen", address, "--advertise", "https://"+address, "--host-kubeconfig", filepath.Join(up.dir, "host.kubeconfig"),
		"--platform-name", "continuous", "--space", "delivered", "--argocd-namespace", "argocd")
	secrets := host.CoreV1().Secrets("argocd")

	secret := await(t, secrets.Get, "delivered-argocd-cluster", func(s *corev1.Secret) error {
		return expect("the label by which Argo CD finds it", s.Labels["argocd.argoproj.io/secret-type"], "cluster")
	})
	// As Argo CD reads it.
	var config struct {
		TLSClientConfig struct {
			Insecure                  bool
			CAData, CertData, KeyData []byte
		} `json:"tlsClientConfig"`
	}
	if err := json.Unmarshal(secret.Data["config"], &config); err != nil {
		t.Fatal(err)
	}
	if name := string(secret.Data["name"]); name != "delivered" || config.TLSClientConfig.Insecure {
		t.Errorf("the cluster is called %q, and is trusted blindly: %v", name, config.TLSClientConfig.Insecure)
	}
	client := must(kubernetes.NewForConfig(&rest.Config{Host: string(secret.Data["server"]), TLSClientConfig: rest.TLSClientConfig{
		CAData: config.TLSClientConfig.CAData, CertData: config.TLSClientConfig.CertData, KeyData: config.TLSClientConfig.KeyData,
	}}))(t)
	eventually(t, func() error {
		is, err := whoAmI(t, client)
		if err != nil {
			return err
		}
		if is.Username != "argocd" || !slices.Contains(is.Groups, "berth:admins") || slices.Contains(is.Groups, "system:masters") {
			t.Fatalf("Argo CD is %s of %q", is.Username, is.Groups)
		}
		may, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(t.Context(), &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
			ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "create", Group: "apps", Resource: "deployments", Namespace: "default"},
		}}, metav1.CreateOptions{})
		if err == nil && !may.Status.Allowed {
			err = fmt.Errorf("Argo CD may create no deployment: %s", may.Status.Reason)
		}
		return err
	})

	host.kubectl(t, "delete", "space", "delivered", "--wait")
	awaitGone(t, "Secret", secrets.Get, secret.Name)
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/translate"
)

const (
	// labelKubeconfig marks a Secret as one of Berth's, and names the space. It
	// is not the label by which the syncer finds a space's own objects.
	labelKubeconfig = translate.Domain + "/kubeconfig"
	// typeKubeconfig is the type of these Secrets, which nobody can change: a Secret of this type is Berth's, and was from
	// the first.
	typeKubeconfig corev1.SecretType = translate.Domain + "/kubeconfig"
	// suffixKubeconfig follows the name of the space in the name of its Secret.
	suffixKubeconfig = "-kubeconfig"
	// kubeconfigKey and valueKey are where tools look for a kubeconfig in a Secret: most at the first, Cluster API and
	// what works with it at the second.
	kubeconfigKey = "kubeconfig"
	valueKey      = "value"
)

// Secrets are copies of the spaces' kubeconfigs in a namespace of the
// host, for those who may read Secrets there (X2). It is the platform's: no
// space is synced to it, and no owner reference leads from or to it.
//
// It writes without reading, because RBAC knows no prefixes of names: the right to get Secrets there would be the right
// to get each of them. Somebody else's Secret of such a name stays as it is all the same, because the host compares:
//
//   - Each write says the type. The host refuses a write that would change the type of a Secret, before anything is written
//     and whoever owns its fields, and nobody but Berth makes Secrets of this type.
//   - A deletion first has the host test type and labels, by a patch that changes nothing and fails where a test does, and
//     then names the UID that the host answered, so that it is about the Secret that was tested.
//   - The chart's admission policy refuses Berth's account all else about a Secret that is not of this type, name, and
//     label before and after the write: also a patch that changes nothing, to which the host would answer what is in it.
//
// Nor does it matter whether a kubeconfig changed: the host does not store a write that changes nothing.
type Secrets struct {
	namespace, platform string
	client              corev1client.SecretInterface
	// suffix follows the name of the space in the name of its Secret, and labels are on it, besides Berth's.
	suffix string
	labels map[string]string
}

// OpenSecrets returns those of a platform in a namespace of a host; nil, on which all methods do nothing, if namespace is empty.
func OpenSecrets(host *rest.Config, namespace, platform string) (*Secrets, error) {
	if namespace == "" {
		return nil, nil
	}
	client, err := kubernetes.NewForConfig(host)
	if err != nil {
		return nil, fmt.Errorf("make host client: %w", err)
	}
	return &Secrets{namespace: namespace, platform: platform, client: client.CoreV1().Secrets(namespace), suffix: suffixKubeconfig}, nil
}

// Write writes the kubeconfig of a space.
func (s *Secrets) Write(ctx context.Context, space string, kubeconfig []byte) error {
	return s.write(ctx, space, map[string][]byte{kubeconfigKey: kubeconfig, valueKey: kubeconfig})
}

func (s *Secrets) write(ctx context.Context, space string, data map[string][]byte) error {
	if s == nil {
		return nil
	}
	name := space + s.suffix
	secret := corev1ac.Secret(name, s.namespace).WithType(typeKubeconfig).WithLabels(s.labels).
		WithLabels(map[string]string{labelKubeconfig: space, translate.LabelPlatform: s.platform, translate.LabelManagedBy: translate.ManagedBy}).
		WithData(data)
	// By force, so that what somebody else changed in it is as it was.
	_, err := s.client.Apply(ctx, secret, metav1.ApplyOptions{FieldManager: "berth", Force: true})
	switch {
	case apierrors.IsInvalid(err):
		return fmt.Errorf("secret %s/%s has another owner, because its type isn't %s; delete it, or choose another name for the space (%w)",
			s.namespace, name, typeKubeconfig, err)
	case err != nil:
		return fmt.Errorf("write secret %s/%s: %w", s.namespace, name, err)
	}
	return nil
}

// Remove deletes the Secret of a space, if it is the space's.
func (s *Secrets) Remove(ctx context.Context, space string) error {
	if s == nil {
		return nil
	}
	name := space + s.suffix
	tests, err := json.Marshal([]map[string]string{
		{"op": "test", "path": "/type", "value": string(typeKubeconfig)},
		{"op": "test", "path": labelPath(labelKubeconfig), "value": space},
		{"op": "test", "path": labelPath(translate.LabelPlatform), "value": s.platform},
	})
	if err != nil {
		return err
	}
	tested, err := s.client.Patch(ctx, name, types.JSONPatchType, tests, metav1.PatchOptions{FieldManager: "berth"})
	if err == nil {
		err = s.client.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &tested.UID}})
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err) { // invalid: a test failed
		return fmt.Errorf("delete secret %s/%s: %w", s.namespace, name, err)
	}
	return nil
}

// labelPath is where a label is in an object, as a JSON pointer.
func labelPath(key string) string { return "/metadata/labels/" + strings.ReplaceAll(key, "/", "~1") }

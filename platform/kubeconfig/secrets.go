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
	// labelKubeconfig marks a Secret of Berth's, and names the space. It is not the label by which the syncer finds a
	// space's objects.
	labelKubeconfig = translate.Domain + "/kubeconfig"
	// typeKubeconfig is the type of these Secrets. The type of a Secret is immutable, so a Secret of this type has
	// always been Berth's.
	typeKubeconfig corev1.SecretType = translate.Domain + "/kubeconfig"
	// suffixKubeconfig is the suffix of the name of a space's Secret.
	suffixKubeconfig = "-kubeconfig"
	// kubeconfigKey and valueKey are the keys at which tools look for a kubeconfig in a Secret: most tools use the
	// first, Cluster API and compatible tools the second.
	kubeconfigKey = "kubeconfig"
	valueKey      = "value"
)

// Secrets are copies of the spaces' kubeconfigs in a namespace of the host, for users who may read Secrets there (X2).
// The namespace belongs to the platform: no space is synced to it, and no owner references lead from or to it.
//
// Berth writes these Secrets without reading them, because RBAC can't match prefixes of names: the right to get them
// would be the right to get all Secrets of the namespace. A Secret of such a name that is not Berth's is not changed,
// because the host compares:
//
// - Each write contains the type. The host rejects a write that would change the type of a Secret before anything is
// written, whoever owns the fields, and only Berth creates Secrets of this type.
// - A deletion begins with a patch that tests type and labels and changes nothing. It fails if a test fails. The
// deletion then names the UID in the host's response, so that it deletes only the Secret that was tested.
// - The chart's admission policy rejects all other requests of Berth's account for Secrets that don't have this type,
// name, and label both before and after the write. This includes patches that change nothing, because the host would
// respond with the contents.
//
// Berth need not know whether a kubeconfig has changed: the host does not store a write that changes nothing.
type Secrets struct {
	namespace, platform string
	client              corev1client.SecretInterface
	// suffix is the suffix of the Secrets' names. labels are added to those of Berth.
	suffix string
	labels map[string]string
}

// OpenSecrets returns the Secrets of a platform in a namespace of a host. If namespace is empty, it returns nil, whose
// methods do nothing.
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
	return s.apply(ctx, identity{name: space + s.suffix, space: space, labels: s.labels}, data)
}

// identity is what identifies a Secret as Berth's.
type identity struct {
	name, space         string
	labels, annotations map[string]string // in addition to those of all Secrets
}

func (s *Secrets) apply(ctx context.Context, of identity, data map[string][]byte) error {
	secret := corev1ac.Secret(of.name, s.namespace).WithType(typeKubeconfig).WithLabels(of.labels).WithAnnotations(of.annotations).
		WithLabels(map[string]string{labelKubeconfig: of.space, translate.LabelPlatform: s.platform, translate.LabelManagedBy: translate.ManagedBy}).
		WithData(data)
	// Force reverts what somebody else has changed.
	_, err := s.client.Apply(ctx, secret, metav1.ApplyOptions{FieldManager: "berth", Force: true})
	switch {
	case apierrors.IsInvalid(err):
		return fmt.Errorf("secret %s/%s has another owner, because its type isn't %s; delete it, or choose another name for the space (%w)",
			s.namespace, of.name, typeKubeconfig, err)
	case err != nil:
		return fmt.Errorf("write secret %s/%s: %w", s.namespace, of.name, err)
	}
	return nil
}

// Remove deletes the Secret of a space, if it belongs to the space.
func (s *Secrets) Remove(ctx context.Context, space string) error {
	if s == nil {
		return nil
	}
	return s.remove(ctx, identity{name: space + s.suffix, space: space})
}

func (s *Secrets) remove(ctx context.Context, of identity) error {
	wanted := []map[string]string{
		{"op": "test", "path": "/type", "value": string(typeKubeconfig)},
		{"op": "test", "path": pointer("labels", labelKubeconfig), "value": of.space},
		{"op": "test", "path": pointer("labels", translate.LabelPlatform), "value": s.platform},
	}
	for field, pairs := range map[string]map[string]string{"labels": of.labels, "annotations": of.annotations} {
		for key, value := range pairs {
			wanted = append(wanted, map[string]string{"op": "test", "path": pointer(field, key), "value": value})
		}
	}
	tests, err := json.Marshal(wanted)
	if err != nil {
		return err
	}
	tested, err := s.client.Patch(ctx, of.name, types.JSONPatchType, tests, metav1.PatchOptions{FieldManager: "berth"})
	if err == nil {
		err = s.client.Delete(ctx, of.name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &tested.UID}})
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsInvalid(err) { // invalid: a test failed
		return fmt.Errorf("delete secret %s/%s: %w", s.namespace, of.name, err)
	}
	return nil
}

// pointer returns the JSON pointer of a label or an annotation of an object.
func pointer(field, key string) string {
	return "/metadata/" + field + "/" + strings.ReplaceAll(key, "/", "~1")
}

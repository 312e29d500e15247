// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package platform

import (
	"bytes"
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1ac "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/berth-dev/berth/translate"
)

const (
	// labelKubeconfig marks a Secret as one of Berth's, and names the space. It
	// is not the label by which the syncer finds a space's own objects.
	labelKubeconfig = translate.Domain + "/kubeconfig"
	// kubeconfigKey and valueKey are where tools look for a kubeconfig in a Secret: most at the first, Cluster API and
	// what works with it at the second.
	kubeconfigKey = "kubeconfig"
	valueKey      = "value"
)

// kubeconfigSecrets are copies of the spaces' kubeconfigs in a namespace of the
// host, for those who may read Secrets there (X2). It is the platform's: no
// space is synced to it, and no owner reference leads from or to it.
type kubeconfigSecrets struct {
	namespace string
	client    corev1client.SecretInterface // nil if none are written
}

// openSecrets prepares to write Secrets, if that was asked for.
func (p *Platform) openSecrets(context.Context) error {
	if p.config.KubeconfigSecrets == "" {
		return nil
	}
	client, err := kubernetes.NewForConfig(p.host.Config())
	if err != nil {
		return fmt.Errorf("make host client: %w", err)
	}
	namespace := p.config.KubeconfigSecrets
	p.secrets = kubeconfigSecrets{namespace: namespace, client: client.CoreV1().Secrets(namespace)}
	return nil
}

// publishKubeconfig writes a space's kubeconfig to its Secret. A failure is no
// reason not to serve: it is logged, and tried again with the next renewal.
func (p *Platform) publishKubeconfig(ctx context.Context, space string, kubeconfig []byte) {
	if p.secrets.client == nil || space == HostName {
		return
	}
	if err := p.secrets.write(ctx, space, kubeconfig); err != nil && ctx.Err() == nil {
		p.logger.Error(err, "publish kubeconfig", "space", space)
	}
}

func (s *kubeconfigSecrets) write(ctx context.Context, space string, kubeconfig []byte) error {
	name := space + "-kubeconfig"
	have, err := s.client.Get(ctx, name, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("read secret %s/%s: %w", s.namespace, name, err)
	case have.Labels[labelKubeconfig] != space:
		return fmt.Errorf("secret %s/%s is somebody else's: it is not labelled %s=%s; remove it or name the space differently", s.namespace, name, labelKubeconfig, space)
	case bytes.Equal(have.Data[kubeconfigKey], kubeconfig) && bytes.Equal(have.Data[valueKey], kubeconfig):
		return nil
	}
	secret := corev1ac.Secret(name, s.namespace).
		WithLabels(map[string]string{labelKubeconfig: space, translate.LabelManagedBy: translate.ManagedBy}).
		WithData(map[string][]byte{kubeconfigKey: kubeconfig, valueKey: kubeconfig})
	if _, err := s.client.Apply(ctx, secret, metav1.ApplyOptions{FieldManager: "berth", Force: true}); err != nil {
		return fmt.Errorf("write secret %s/%s: %w", s.namespace, name, err)
	}
	return nil
}

// remove deletes the Secret of a space, if it is the space's.
func (s *kubeconfigSecrets) remove(ctx context.Context, space string) error {
	if s.client == nil {
		return nil
	}
	name := space + "-kubeconfig"
	have, err := s.client.Get(ctx, name, metav1.GetOptions{})
	if err == nil && have.Labels[labelKubeconfig] == space {
		err = s.client.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &have.UID}})
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete secret %s/%s: %w", s.namespace, name, err)
	}
	return nil
}

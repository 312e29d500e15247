// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// These are the marks of Secrets with kubeconfigs on the host.
const (
	labelSpace      = "berth.dev/kubeconfig"
	labelOwnerKind  = "berth.dev/owner-kind"
	annotationOwner = "berth.dev/owner"
	suffix          = "-kubeconfig"
)

// Wanted is a kubeconfig to find.
type Wanted struct {
	Space string
	// Owner is the name of an owner, and OwnerKind its kind, if that is known. If Owner is empty, the kubeconfig of the space's
	// admin is wanted.
	Owner     string
	OwnerKind v1alpha1.SubjectKind
	// Namespace is that of the Secret on the host. All are searched if it is empty.
	Namespace string
}

// ParseOwner returns kind and name of OWNER or KIND:OWNER.
func ParseOwner(text string) (kind v1alpha1.SubjectKind, name string) {
	for _, kind := range []v1alpha1.SubjectKind{v1alpha1.UserKind, v1alpha1.GroupKind, v1alpha1.ServiceAccountKind, v1alpha1.HostServiceAccountKind} {
		if name, found := strings.CutPrefix(text, string(kind)+":"); found {
			return kind, name
		}
	}
	return "", text
}

// NotFoundError is returned if the host has no Secret with the kubeconfig.
type NotFoundError struct{ message string }

func (e *NotFoundError) Error() string { return e.message }

// Find returns the Secret on the host with the kubeconfig that is wanted.
func Find(ctx context.Context, host client.Reader, w Wanted) (*corev1.Secret, error) {
	var list corev1.SecretList
	err := host.List(ctx, &list, client.MatchingLabels{labelSpace: w.Space}, client.InNamespace(w.Namespace))
	if apierrors.IsForbidden(err) && w.Namespace == "" {
		return nil, fmt.Errorf("%w; name the namespace with --secret-namespace if you may read its Secrets only", err)
	}
	if err != nil {
		return nil, fmt.Errorf("find the kubeconfig of space %s: %w", w.Space, err)
	}
	var found []corev1.Secret
	for _, secret := range list.Items {
		if w.matches(&secret) {
			found = append(found, secret)
		}
	}
	switch len(found) {
	case 0:
		return nil, &NotFoundError{w.missing(list.Items)}
	case 1:
		return &found[0], nil
	}
	var names []string
	for i := range found {
		names = append(names, describe(&found[i]))
	}
	slices.Sort(names)
	return nil, fmt.Errorf("several Secrets have a kubeconfig of space %s: %s; choose one with --secret-namespace, or with --as-owner KIND:NAME", w.Space, strings.Join(names, ", "))
}

func (w *Wanted) matches(secret *corev1.Secret) bool {
	kind := secret.Labels[labelOwnerKind]
	if w.Owner == "" {
		return kind == "" && secret.Name == w.Space+suffix // others have the label as well, such as that of Argo CD
	}
	return kind != "" && secret.Annotations[annotationOwner] == w.Owner && (w.OwnerKind == "" || kind == string(w.OwnerKind))
}

func (w *Wanted) missing(others []corev1.Secret) string {
	where := "any namespace"
	if w.Namespace != "" {
		where = "namespace " + w.Namespace
	}
	if w.Owner == "" {
		return fmt.Sprintf("no Secret %s%s with the label %s=%[1]s found in %[4]s of the host; check that the space has started, and that Berth runs with --kubeconfig-secrets (in the chart: kubeconfigSecrets)",
			w.Space, suffix, labelSpace, where)
	}
	owners := Owners(others)
	if len(owners) == 0 {
		return fmt.Sprintf("no Secret with a kubeconfig for owner %s of space %s found in %s of the host; the space has no owners, or Berth doesn't run with --kubeconfig-secrets", w.Owner, w.Space, where)
	}
	return fmt.Sprintf("%s is no owner of space %s with a kubeconfig in %s of the host; found: %s", w.Owner, w.Space, where, strings.Join(owners, ", "))
}

// Owners returns the owners that Secrets are for, as KIND:NAME, sorted.
func Owners(secrets []corev1.Secret) (owners []string) {
	for _, secret := range secrets {
		if kind := secret.Labels[labelOwnerKind]; kind != "" {
			owners = append(owners, kind+":"+secret.Annotations[annotationOwner])
		}
	}
	slices.Sort(owners)
	return slices.Compact(owners)
}

func describe(secret *corev1.Secret) string {
	name := secret.Namespace + "/" + secret.Name
	if kind := secret.Labels[labelOwnerKind]; kind != "" {
		name += fmt.Sprintf(" (%s %s)", kind, secret.Annotations[annotationOwner])
	}
	return name
}

// Kubeconfig returns the kubeconfig in a Secret.
func Kubeconfig(secret *corev1.Secret) ([]byte, error) {
	for _, key := range []string{"kubeconfig", "value"} {
		if data := secret.Data[key]; len(data) > 0 {
			return data, nil
		}
	}
	return nil, fmt.Errorf("the Secret %s/%s has no kubeconfig in its key kubeconfig; delete it, and Berth writes it again", secret.Namespace, secret.Name)
}

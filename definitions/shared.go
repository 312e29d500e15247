// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package definitions

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// AnnotationShare marks a definition in a space as one that the platform shares by a CRDShare. Its value is the name of that.
const AnnotationShare = "berth.dev/crd-share"

// sharedUID begins the UID of a definition that is shared. API servers make UIDs of hexadecimal digits and hyphens, so no definition of
// a space has one.
const sharedUID = "berth-shared-"

// IsShared reports whether a definition, as a space's API server serves it, is one that the platform shares. A tenant can't make one
// that is: UIDs can't be chosen.
func IsShared(crd metav1.Object) bool { return strings.HasPrefix(string(crd.GetUID()), sharedUID) }

// ErrUnsupported means that a definition can't be shared.
var ErrUnsupported = errors.New("can't be shared")

// shareOf returns the name of the CRDShare of a definition that is shared; "" if it has none.
func shareOf(crd *apiextensionsv1.CustomResourceDefinition) string {
	return crd.Annotations[AnnotationShare]
}

// Serve returns a definition of the host as spaces serve it: without what concerns the host, such as its labels, and marked by share,
// which is the name of the CRDShare; "" if there is none. One copy is for all spaces.
//
// stored are versions in which spaces may have stored objects. The host doesn't know these objects, and may have dropped the version. It
// is added then, without being served, so that spaces can read the objects. Its schema accepts everything.
//
// Where the host's conversion webhook is, spaces don't know: see [WebhookOf]. What they have instead leads nowhere.
//
// Its resource version is made of the content that spaces serve, with a leading zero. So it differs from each resource version of a
// space, an informer of a space can tell one definition from another, and what changes nothing for spaces is no other version, such as
// most of the status. Spaces see that as it was when the content changed last.
func Serve(host *apiextensionsv1.CustomResourceDefinition, share string, stored ...string) (*apiextensionsv1.CustomResourceDefinition, error) {
	if converts(host) && !hasWebhook(host) {
		return nil, fmt.Errorf("%s: %w: spec.conversion.strategy is Webhook, and there is no spec.conversion.webhook.clientConfig; add it", host.Name, ErrUnsupported)
	}
	if host.Spec.PreserveUnknownFields {
		return nil, fmt.Errorf("%s: %w: spec.preserveUnknownFields is true; give the definition a structural schema", host.Name, ErrUnsupported)
	}
	if !established(host) {
		return nil, fmt.Errorf("%s: %w: the host doesn't serve it yet; see its status.conditions", host.Name, ErrUnsupported)
	}
	served := host.DeepCopy()
	if hasWebhook(served) {
		hideWebhook(served, "https")
	}
	for _, name := range stored {
		if !slices.ContainsFunc(served.Spec.Versions, func(v apiextensionsv1.CustomResourceDefinitionVersion) bool { return v.Name == name }) {
			served.Spec.Versions = append(served.Spec.Versions, unserved(name))
		}
	}
	version, err := contentVersion(served)
	if err != nil {
		return nil, err
	}
	served.ObjectMeta = metav1.ObjectMeta{
		Name: host.Name, UID: uidOf(host), ResourceVersion: "0" + version, Generation: host.Generation,
		CreationTimestamp: host.CreationTimestamp,
	}
	if share != "" {
		metav1.SetMetaDataAnnotation(&served.ObjectMeta, AnnotationShare, share)
	}
	if approved, ok := host.Annotations[apiextensionsv1.KubeAPIApprovedAnnotation]; ok {
		metav1.SetMetaDataAnnotation(&served.ObjectMeta, apiextensionsv1.KubeAPIApprovedAnnotation, approved)
	}
	return served, nil
}

// uidOf returns the UID that a definition of the host has in spaces. It tells nothing of that on the host.
func uidOf(host *apiextensionsv1.CustomResourceDefinition) types.UID {
	hash := sha256.Sum256([]byte(host.UID))
	return types.UID(sharedUID + hex.EncodeToString(hash[:16]))
}

// unserved returns a version in which objects can be stored, and nothing else.
func unserved(name string) apiextensionsv1.CustomResourceDefinitionVersion {
	return apiextensionsv1.CustomResourceDefinitionVersion{Name: name, Schema: &apiextensionsv1.CustomResourceValidation{
		OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)},
	}}
}

// StorageVersion returns the version in which a definition has objects stored.
func StorageVersion(crd *apiextensionsv1.CustomResourceDefinition) string {
	for i := range crd.Spec.Versions {
		if crd.Spec.Versions[i].Storage {
			return crd.Spec.Versions[i].Name
		}
	}
	return ""
}

// contentVersion is a number, as resource versions are, that differs for definitions that are served in another way.
func contentVersion(crd *apiextensionsv1.CustomResourceDefinition) (string, error) {
	content, err := json.Marshal([]any{crd.Spec, crd.Status.AcceptedNames})
	if err != nil {
		return "", fmt.Errorf("encode the definition %s: %w", crd.Name, err)
	}
	hash := sha256.Sum256(content)
	return strconv.FormatUint(binary.BigEndian.Uint64(hash[:]), 10), nil
}

// SameContent reports whether spaces serve two definitions, as [Serve] returns them, in the same way and for the same share.
func SameContent(a, b *apiextensionsv1.CustomResourceDefinition) bool {
	return a.UID == b.UID && a.ResourceVersion == b.ResourceVersion && shareOf(a) == shareOf(b)
}

func established(crd *apiextensionsv1.CustomResourceDefinition) bool {
	if crd.DeletionTimestamp != nil {
		return false
	}
	for _, c := range crd.Status.Conditions {
		if c.Type == apiextensionsv1.Established {
			return c.Status == apiextensionsv1.ConditionTrue
		}
	}
	return false
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/translate"
)

// AnnotationDigest replaces the data of config maps and secrets in the shared watches, and is never on the host. All
// spaces share the watches, so they must not contain the megabytes of one tenant.
const AnnotationDigest = translate.Domain + "/digest"

// DigestData replaces the data of a config map or secret from the host by a digest. It may be called again with the
// result.
func DigestData(obj any) {
	switch o := obj.(type) {
	case *corev1.ConfigMap:
		if o.Data != nil || o.BinaryData != nil {
			metav1.SetMetaDataAnnotation(&o.ObjectMeta, AnnotationDigest, digestConfigMap(o))
			o.Data, o.BinaryData = nil, nil
		}
	case *corev1.Secret:
		if o.Data != nil {
			metav1.SetMetaDataAnnotation(&o.ObjectMeta, AnnotationDigest, digestSecret(o))
			o.Data = nil
		}
	}
}

// RecallConfigMap sets the data of have, which comes from a watch: to that of want, if the digests are equal, and
// otherwise to some other data.
func RecallConfigMap(want, have *corev1.ConfigMap) {
	if recall(have, digestConfigMap(want), digestConfigMap(&corev1.ConfigMap{})) {
		have.Data, have.BinaryData = want.Data, want.BinaryData
	} else {
		have.Data = map[string]string{unknown: ""}
	}
}

// RecallSecret is RecallConfigMap for secrets.
func RecallSecret(want, have *corev1.Secret) {
	if recall(have, digestSecret(want), digestSecret(&corev1.Secret{})) {
		have.Data = want.Data
	} else {
		have.Data = map[string][]byte{unknown: nil}
	}
}

// unknown is a key that no config map or secret can have.
const unknown = "/"

// recall removes the digest from have, and reports whether it equals that of the wanted data. An object without data
// has no digest.
func recall(have metav1.Object, wanted, nothing string) bool {
	annotations := have.GetAnnotations()
	had, ok := annotations[AnnotationDigest]
	if !ok {
		had = nothing
	}
	delete(annotations, AnnotationDigest)
	return had == wanted
}

// A digest ends with the size of the data.

func digestConfigMap(c *corev1.ConfigMap) string {
	return Digest(c.Data) + Digest(c.BinaryData) + "." + strconv.Itoa(size(c.Data)+size(c.BinaryData))
}

func digestSecret(s *corev1.Secret) string {
	return Digest(s.Data) + "." + strconv.Itoa(size(s.Data))
}

func size[V string | []byte](data map[string]V) (n int) {
	for key, value := range data {
		n += len(key) + len(value)
	}
	return n
}

// Digest returns the digest of all keys and values, each with its length.
func Digest[V string | []byte](data map[string]V) string {
	hash := sha256.New()
	part := func(b []byte) {
		var size [8]byte
		binary.BigEndian.PutUint64(size[:], uint64(len(b)))
		hash.Write(size[:])
		hash.Write(b)
	}
	for _, key := range slices.Sorted(maps.Keys(data)) {
		part([]byte(key))
		part([]byte(data[key]))
	}
	return hex.EncodeToString(hash.Sum(nil))
}

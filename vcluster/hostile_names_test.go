// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"bytes"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
)

// S3, D4: roles may have almost any name, and in Protobuf even one that is no text. Not each type of store can have that, nor a replica.
func TestHostileNamesThatAreNoTextAreRefused(t *testing.T) {
	_, _, config := bounded(t, nil)
	client := clientset(t, config)
	info, _ := runtime.SerializerInfoForMediaType(scheme.Codecs.SupportedMediaTypes(), runtime.ContentTypeProtobuf)
	for sign, refused := range map[string]bool{"@": false, "\xff": true, "\x00": true} {
		for _, name := range []string{"hostile@name", "hostile@" + strings.Repeat("x", 100_000)} {
			var body bytes.Buffer
			role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}}
			if err := scheme.Codecs.EncoderForVersion(info.Serializer, rbacv1.SchemeGroupVersion).Encode(role, &body); err != nil {
				t.Fatal(err)
			}
			named := bytes.Replace(body.Bytes(), []byte("@"), []byte(sign), 1)
			err := client.RbacV1().RESTClient().Post().Resource("clusterroles").SetHeader("Content-Type", runtime.ContentTypeProtobuf).Body(named).Do(t.Context()).Error()
			if (err != nil) != refused || refused && (!apierrors.IsBadRequest(err) || !strings.Contains(err.Error(), "metadata.name") || len(err.Error()) > 2000) {
				t.Errorf("a role with %q in its name of %d bytes: %.2000v", sign, len(name), err)
			}
		}
	}
}

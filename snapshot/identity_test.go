// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot_test

import (
	"bytes"
	"context"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/berth-dev/berth/snapshot"
)

// clone makes the space into of a snapshot of the space from, with addresses of services by reserve, and wakes it.
func (s *spaces) clone(t *testing.T, reserve snapshot.Reserve) {
	t.Helper()
	bucket := open(t, "file://"+t.TempDir())
	info, err := keeper(t, s, bucket, nil).Take(t.Context(), "from", bucket)
	if err != nil {
		t.Fatal(err)
	}
	id, err := snapshot.ParseID(info.ID)
	if err != nil {
		t.Fatal(err)
	}
	yes := func(context.Context) error { return nil }
	if _, err := snapshot.Clone(t.Context(), bucket, id, "into", s.dir, t.TempDir(), yes, reserve); err != nil {
		t.Fatal(err)
	}
	s.wake(t, "into")
}

// S1: no service of a space that was made of another shows an address of that
// one, nor does that of its API where the host gives it none.
func TestServicesOfAnotherSpaceHaveItsAddresses(t *testing.T) {
	encoding := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	service := func(name string, spec corev1.ServiceSpec) *corev1.Service {
		spec.Ports = []corev1.ServicePort{{Port: 80, NodePort: spec.HealthCheckNodePort}}
		return &corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: "old"}, Spec: spec}
	}
	const (
		cluster = corev1.ServiceTypeClusterIP
		theirs  = "10.0.0.1"
		own     = "10.0.0.2"
	)
	for reason, c := range map[string]struct {
		held, host *corev1.Service
		want       string
	}{
		"the host gives it one":               {service("web", corev1.ServiceSpec{Type: cluster, ClusterIP: theirs}), service("web", corev1.ServiceSpec{ClusterIP: own}), own},
		"its node port, too":                  {service("web", corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, ClusterIP: theirs, HealthCheckNodePort: 30001}), service("web", corev1.ServiceSpec{ClusterIP: own}), own},
		"it has none":                         {service("web", corev1.ServiceSpec{Type: cluster, ClusterIP: "None"}), nil, "None"},
		"the API's, as any":                   {service("kubernetes", corev1.ServiceSpec{Type: cluster, ClusterIP: theirs}), service("kubernetes", corev1.ServiceSpec{ClusterIP: own}), own},
		"services are not synced, the API is": {service("kubernetes", corev1.ServiceSpec{Type: cluster, ClusterIP: theirs}), nil, "gone"},
		"the tenant exposed it":               {service("kubernetes", corev1.ServiceSpec{Type: corev1.ServiceTypeNodePort, ClusterIP: theirs}), nil, "gone"},
		"or one that leads elsewhere":         {service("kubernetes", corev1.ServiceSpec{Type: corev1.ServiceTypeExternalName}), nil, "gone"},
		"or none at all":                      {service("kubernetes", corev1.ServiceSpec{Type: cluster, ClusterIP: "None"}), nil, "gone"},
	} {
		s := newSpaces(t, "from", "into")
		s.sleep(t, "into")
		var held bytes.Buffer
		if err := encoding.Encode(c.held, &held); err != nil {
			t.Fatal(err)
		}
		key := "/registry/services/specs/default/" + c.held.Name
		s.put(t, "from", key, held.String())
		s.clone(t, func(_ context.Context, asked []*corev1.Service) ([]*corev1.Service, error) {
			hosts := make([]*corev1.Service, len(asked))
			for i, v := range asked {
				if v.UID != "" || v.Spec.ClusterIP == theirs || v.Spec.HealthCheckNodePort != 0 || v.Spec.Ports[0].NodePort != 0 {
					t.Errorf("%s: asks as the other: %v", reason, v)
				}
				if v.Name == c.held.Name {
					hosts[i] = c.host
				}
			}
			return hosts, nil
		})
		got := "gone"
		if value := s.get(t, "into", key); value != "" {
			v := &corev1.Service{}
			if _, _, err := encoding.Decode([]byte(value), nil, v); err != nil {
				t.Fatal(err)
			}
			if got = v.Spec.ClusterIP; v.Spec.Ports[0].NodePort != 0 || v.UID != "old" {
				t.Errorf("%s: it is %v", reason, v)
			}
		}
		if got != c.want {
			t.Errorf("%s: it has %s, want %s", reason, got, c.want)
		}
	}
}

// S1: no token of a space gets into one that was made of it, however many objects there are before the token.
func TestTokensOfAnotherSpaceAreLeftOut(t *testing.T) {
	s := newSpaces(t, "from", "into")
	s.sleep(t, "into")
	encoding := protobuf.NewSerializer(scheme.Scheme, scheme.Scheme)
	put := func(name string, kind corev1.SecretType, token []byte) (key string) {
		secret := &corev1.Secret{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Secret"}, ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
			Type: kind, Data: map[string][]byte{"token": token},
		}
		var held bytes.Buffer
		if err := encoding.Encode(secret, &held); err != nil {
			t.Fatal(err)
		}
		key = "/registry/secrets/default/" + name
		s.put(t, "from", key, held.String())
		return key
	}
	var large []string
	for i := range 10 { // more than a list returns at once
		large = append(large, put(fmt.Sprintf("a-%02d", i), corev1.SecretTypeOpaque, make([]byte, 1<<20)))
	}
	const ofTheOther = "of the other space"
	token := put("token", corev1.SecretTypeServiceAccountToken, []byte(ofTheOther))
	s.clone(t, func(_ context.Context, asked []*corev1.Service) ([]*corev1.Service, error) {
		return make([]*corev1.Service, len(asked)), nil
	})
	for _, key := range large {
		if s.get(t, "into", key) == "" {
			t.Errorf("%s is missing", key)
		}
	}
	if got := s.get(t, "into", token); got == "" || strings.Contains(got, ofTheOther) {
		t.Errorf("the Secret of the token is %q", got)
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostcache

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/translate"
)

// T9: a tenant's megabytes of secrets are not in the memory of the watches that
// all spaces share, and what was changed on the host is undone all the same.
func TestTheSharedWatchesHoldNoDataAndTellAChange(t *testing.T) {
	space := translate.Space{Name: "demo"}
	meta := metav1.ObjectMeta{Namespace: "default", Name: "o", UID: types.UID("u")}
	big := strings.Repeat("x", 1<<20)
	tests := map[string]struct {
		reason  string
		want    map[string]string
		have    map[string]string
		changed bool
	}{
		"same":           {"a write for nothing", map[string]string{"a": big, "b": "2"}, map[string]string{"a": big, "b": "2"}, false},
		"both empty":     {"a write for nothing", nil, nil, false},
		"another value":  {"by hand on the host, or in the space", map[string]string{"a": big}, map[string]string{"a": big + "y"}, true},
		"another key":    {"", map[string]string{"a": "1"}, map[string]string{"b": "1"}, true},
		"one more":       {"", map[string]string{"a": "1"}, map[string]string{"a": "1", "b": "2"}, true},
		"emptied":        {"on the host", map[string]string{"a": "1"}, nil, true},
		"filled":         {"on the host", nil, map[string]string{"a": "1"}, true},
		"shifted border": {"keys and values are told apart", map[string]string{"ab": "c"}, map[string]string{"a": "bc"}, true},
	}
	bytes := func(in map[string]string) map[string][]byte {
		var out map[string][]byte
		for key, value := range in {
			if out == nil {
				out = map[string][]byte{}
			}
			out[key] = []byte(value)
		}
		return out
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for _, binary := range []bool{false, true} {
				configMap := func(data map[string]string) *corev1.ConfigMap {
					if binary {
						return space.ConfigMap(&corev1.ConfigMap{ObjectMeta: meta, BinaryData: bytes(data)})
					}
					return space.ConfigMap(&corev1.ConfigMap{ObjectMeta: meta, Data: data})
				}
				host := configMap(test.have)
				inWatch(t, host)
				want, have := configMap(test.want), host.DeepCopy()
				RecallConfigMap(want, have)
				if changed := translate.PushConfigMap(want, have); changed != test.changed {
					t.Errorf("config map, %s: changed: %t", test.reason, changed)
				}
				written(t, have, have.Data, want.Data)
				written(t, have, have.BinaryData, want.BinaryData)
			}
			host := space.Secret(&corev1.Secret{ObjectMeta: meta, Data: bytes(test.have)})
			inWatch(t, host)
			want, have := space.Secret(&corev1.Secret{ObjectMeta: meta, Data: bytes(test.want)}), host.DeepCopy()
			RecallSecret(want, have)
			if changed := translate.PushSecret(want, have); changed != test.changed {
				t.Errorf("secret, %s: changed: %t", test.reason, changed)
			}
			written(t, have, have.Data, bytes(test.want))
		})
	}
}

// inWatch makes of a host object what the watch keeps of it.
func inWatch(t *testing.T, o client.Object) {
	t.Helper()
	for range 2 { // what a reflector has collected is trimmed already
		trim(o)
	}
	if n := len(fmt.Sprint(o)); n > 10_000 {
		t.Errorf("the watch keeps %d bytes", n)
	}
}

// written checks what would be written to the host.
func written[V any](t *testing.T, o metav1.Object, got, want map[string]V) {
	t.Helper()
	if _, told := o.GetAnnotations()[AnnotationDigest]; told {
		t.Error("the digest goes to the host")
	}
	if len(got) != len(want) || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%d keys would be written, want %d", len(got), len(want))
	}
}

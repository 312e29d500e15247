// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package declaration_test

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Whatever a tenant writes, its host object has declared fields only, names of the space, and is the same when it is updated with itself.
func FuzzAnObjectOfATenant(f *testing.F) {
	f.Add(`{"secretName":"a","parts":[{"of":"b","weight":1}],"pods":{"matchLabels":{"a":"b"}}}`, `{"conditions":[{"observedGeneration":1}]}`)
	f.Add(`{"dnsNames":["a.example.com"],"issuerRef":{"name":"public","kind":"Authority"},"privateKey":null}`, `"x"`)
	f.Add(`[{"parts":{}}]`, `null`)
	f.Add(`{"parts":[null,[],{"of":null}],"hook":"x"}`, `{"conditions":{"a":[1]}}`)
	d := compiled(f, spec(f))
	f.Fuzz(func(t *testing.T, content, status string) {
		v := object(t, paper)
		var fields, observed any
		if utiljson.Unmarshal([]byte(content), &fields) != nil || utiljson.Unmarshal([]byte(status), &observed) != nil {
			return // it is not JSON
		}
		v.Object["spec"], v.Object["status"] = fields, observed
		host, errs := d.ToHost(t.Context(), shop, v, imports)
		if len(errs) > 0 {
			return
		}
		if again := host.DeepCopy(); d.Update(host, again) {
			t.Errorf("an update with itself changes %v", host.Object)
		}
		checkHost(t, host)
		out, _ := d.Status(shop, v, host)
		if _, changed := d.Status(shop, out, host); changed {
			t.Errorf("the status changes again: %v", out.Object["status"])
		}
	})
}

// checkHost checks what a host object has.
func checkHost(t *testing.T, host *unstructured.Unstructured) {
	t.Helper()
	top := slices.Sorted(maps.Keys(host.Object))
	if extra := slices.DeleteFunc(top, func(name string) bool {
		return slices.Contains([]string{"apiVersion", "kind", "metadata", "spec"}, name)
	}); len(extra) > 0 {
		t.Errorf("the host object has %v", extra)
	}
	spec, _ := host.Object["spec"].(map[string]any)
	for name, value := range spec {
		switch name {
		case "secretName":
			if s, ok := value.(string); !ok || !strings.HasPrefix(s, "shop.returned--") {
				t.Errorf("the Secret is %v", value)
			}
		case "parts":
			for _, part := range value.([]any) {
				if of, has := part.(map[string]any)["of"]; has && !strings.HasPrefix(of.(string), "shop--apps--") {
					t.Errorf("a part is of %v", of)
				}
			}
		case "pods":
			encoded, err := json.Marshal(value)
			if err != nil || !strings.Contains(string(encoded), `{"key":"berth.dev/space","operator":"In","values":["shop"]}`) {
				t.Errorf("pods are selected by %s", encoded)
			}
		case "dnsNames", "privateKey", "issuerRef":
		default:
			t.Errorf("the spec has %s", name)
		}
	}
}

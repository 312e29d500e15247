// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/vcluster/stored"
)

const (
	configMapsPath = "/api/v1/namespaces/default/configmaps"
	thingsPath     = "/apis/example.com/v1/namespaces/default/things"
)

// numbered joins what f returns for the numbers from first on.
func numbered(first, n int, f string) string {
	parts := make([]string, n)
	for i := range parts {
		parts[i] = fmt.Sprintf(f, first+i)
	}
	return strings.Join(parts, ",")
}

func configMapJSON(metadata, data string) string {
	return `{"apiVersion":"v1","kind":"ConfigMap","metadata":{` + metadata + `},"data":{` + data + `}}`
}

func thing(name, fields string) string {
	return `{"apiVersion":"example.com/v1","kind":"thing","metadata":{"name":"` + name + `"},` + fields + `}`
}

// send sends a document as it is.
func send(ctx context.Context, client rest.Interface, verb, path, contentType, body string) error {
	ctx, leave := context.WithTimeout(ctx, time.Minute)
	defer leave()
	r := client.Verb(verb).AbsPath(path).SetHeader("Content-Type", contentType).Body([]byte(body))
	if contentType == string(types.ApplyYAMLPatchType) {
		r = r.Param("fieldManager", "test").Param("force", "true")
	}
	return r.Do(ctx).Error()
}

// defineThings has a space serve a kind with maps and lists.
func defineThings(t *testing.T, config *rest.Config, client rest.Interface) {
	t.Helper()
	definitions, err := apiextensions.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	set := "set"
	text := apiextensionsv1.JSONSchemaProps{Type: "string"}
	texts := apiextensionsv1.JSONSchemaProps{Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: &text}}
	d := definition("thing", 1)
	d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties = map[string]apiextensionsv1.JSONSchemaProps{
		"texts":  texts,
		"nested": {Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{Allows: true, Schema: &texts}},
		"numbers": {Type: "array", XListType: &set, Items: &apiextensionsv1.JSONSchemaPropsOrArray{
			Schema: &apiextensionsv1.JSONSchemaProps{Type: "integer"},
		}},
	}
	if _, err := definitions.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		return send(t.Context(), client, "POST", thingsPath, runtime.ContentTypeJSON, thing("usual", `"numbers":[`+numbered(1, 5000, "%d")+`]`))
	})
}

// L3: field managers and validation take time that is quadratic in the elements of a map or a list, and in others of an object's
// sizes; nothing interrupts them. A request of 470 KB took 16 seconds, one of 750 KB gigabytes. It is refused, by whatever
// encoding and verb it comes, and small patches of what is stored can't cost much.
func TestHostileObjectsOfManyFieldsAreRefused(t *testing.T) {
	_, _, config := bounded(t, nil)
	config.QPS = -1
	kube := clientset(t, config)
	client := kube.CoreV1().RESTClient()
	defineThings(t, config, client)
	const few = 9000
	keys := func(first, n int) string { return numbered(first, n, `"key-%05d":""`) }
	if err := send(t.Context(), client, "POST", configMapsPath, runtime.ContentTypeJSON, configMapJSON(`"name":"m"`, keys(0, few))); err != nil {
		t.Fatalf("%d keys: %v", few, err)
	}
	if err := send(t.Context(), client, "POST", thingsPath, runtime.ContentTypeJSON, thing("full", `"numbers":[`+numbered(1, few, "%d")+`]`)); err != nil {
		t.Fatalf("a set of %d: %v", few, err)
	}
	owners := numbered(1, 1500, `{"apiVersion":"v1","kind":"Pod","uid":"a","name":"p-%d"}`)
	managers := numbered(1, 150, `{"manager":"m-%d","operation":"Apply","apiVersion":"v1","fieldsType":"FieldsV1","fieldsV1":{"f:data":{}}}`)
	const one = configMapsPath + "/m"
	created := 0
	for name, c := range map[string]struct{ verb, path, contentType, body string }{
		"many keys":                 {"POST", configMapsPath, runtime.ContentTypeJSON, configMapJSON(`"name":"NEW"`, keys(0, 12_000))},
		"many keys in YAML":         {"POST", configMapsPath, runtime.ContentTypeYAML, "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: NEW}\ndata:\n" + strings.ReplaceAll(numbered(0, 12_000, "  key-%05d: a"), ",", "\n")},
		"many keys instead":         {"PUT", one, runtime.ContentTypeJSON, configMapJSON(`"name":"m"`, keys(0, 12_000))},
		"many keys that are merged": {"PATCH", one, string(types.MergePatchType), `{"data":{` + keys(0, 12_000) + `}}`},
		"many keys by two patches":  {"PATCH", one, string(types.MergePatchType), `{"data":{` + keys(few, few) + `}}`},
		"many keys by operations":   {"PATCH", one, string(types.JSONPatchType), `[{"op":"add","path":"/data","value":{` + keys(0, 12_000) + `}}]`},
		"many keys that are applied": {"PATCH", configMapsPath + "/NEW", string(types.ApplyYAMLPatchType),
			configMapJSON(`"name":"NEW"`, keys(0, 12_000))},
		"many finalizers":       {"POST", configMapsPath, runtime.ContentTypeJSON, configMapJSON(`"name":"NEW","finalizers":[`+numbered(0, 12_000, `"a.b/%05d"`)+`]`, "")},
		"owners of one UID":     {"POST", configMapsPath, runtime.ContentTypeJSON, configMapJSON(`"name":"NEW","ownerReferences":[`+owners+`]`, "")},
		"owners by a patch":     {"PATCH", one, string(types.JSONPatchType), `[{"op":"add","path":"/metadata/ownerReferences","value":[` + owners + `]}]`},
		"many managers":         {"PATCH", one, string(types.MergePatchType), `{"metadata":{"managedFields":[` + managers + `]}}`},
		"a custom map":          {"POST", thingsPath, runtime.ContentTypeJSON, thing("NEW", `"texts":{`+keys(0, 12_000)+`}`)},
		"a set":                 {"POST", thingsPath, runtime.ContentTypeJSON, thing("NEW", `"numbers":[`+numbered(0, 12_000, "%d")+`]`)},
		"a set in YAML":         {"POST", thingsPath, runtime.ContentTypeYAML, "apiVersion: example.com/v1\nkind: thing\nmetadata: {name: NEW}\nnumbers: [" + numbered(0, 12_000, "%d") + "]\n"},
		"a long name":           {"POST", thingsPath, runtime.ContentTypeJSON, thing("NEW", `"nested":{"`+strings.Repeat("n", 700_000)+`":{`+keys(0, 200)+`}}`)},
		"a long name, in error": {"POST", thingsPath, runtime.ContentTypeJSON, thing("NEW", `"nested":{"`+strings.Repeat("n", 700_000)+`":{`+numbered(0, 200, `"%d":1`)+`}}`)},
	} {
		created++
		named := strings.NewReplacer("NEW", fmt.Sprintf("new-%d", created))
		if err := send(t.Context(), client, c.verb, named.Replace(c.path), c.contentType, named.Replace(c.body)); !refusedForFields(err) {
			t.Errorf("%s: %.300v", name, err)
		}
	}

	binary := rest.CopyConfig(config)
	binary.ContentType = runtime.ContentTypeProtobuf
	encoded, err := kubernetes.NewForConfig(binary)
	if err != nil {
		t.Fatal(err)
	}
	many := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "encoded"}, Data: map[string]string{}}
	owned := many.DeepCopy()
	for i := range 12_000 {
		many.Data[fmt.Sprintf("key-%05d", i)] = ""
	}
	for i := range 1500 {
		owned.OwnerReferences = append(owned.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: fmt.Sprintf("p-%d", i), UID: "a"})
	}
	for name, m := range map[string]*corev1.ConfigMap{"many keys": many, "owners of one UID": owned} {
		if _, err := encoded.CoreV1().ConfigMaps("default").Create(t.Context(), m, metav1.CreateOptions{}); !refusedForFields(err) {
			t.Errorf("%s in protobuf: %.300v", name, err)
		}
	}

	message, err := owned.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	// An API server's decoder skips a field whose number overflows, and reads what comes after it.
	message = append(protowire.AppendVarint(protowire.AppendVarint(nil, (1<<32+50)<<3), 0), message...)
	document, err := (&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"}, Raw: message}).Marshal()
	if err != nil {
		t.Fatal(err)
	}
	if err := send(t.Context(), client, "POST", configMapsPath, runtime.ContentTypeProtobuf, stored.ProtobufPrefix+string(document)); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "malformed protobuf") {
		t.Errorf("malformed protobuf: %.300v", err)
	}

	for _, contentType := range []types.PatchType{types.MergePatchType, types.StrategicMergePatchType} {
		patch := fmt.Sprintf(`{"data":{"key-00000":%q}}`, contentType)
		if err := send(t.Context(), client, "PATCH", one, string(contentType), patch); err != nil {
			t.Errorf("a small patch afterwards: %v", err)
		}
	}
	read, err := client.Get().AbsPath(one).DoRaw(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := send(t.Context(), client, "PUT", one, runtime.ContentTypeJSON, string(read)); err != nil {
		t.Errorf("an update of what was read: %v", err)
	}
	if err := send(t.Context(), client, "PATCH", thingsPath+"/full", string(types.MergePatchType), `{"texts":{"a":"b"}}`); err != nil {
		t.Errorf("a patch of a set of 9,000: %v", err)
	}
	if err := send(t.Context(), client, "DELETE", one, runtime.ContentTypeJSON, `{}`); err != nil {
		t.Errorf("a deletion afterwards: %v", err)
	}
}

func refusedForFields(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "limit field-steps")
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apiextensions "k8s.io/apiextensions-apiserver/pkg/client/clientset/clientset"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
)

const listedErrors = ", of which only the first 100 are listed"

// checkInvalid checks that an answer lists the first 100 errors and says how many there are.
func checkInvalid(t *testing.T, name string, err error, total string) {
	t.Helper()
	var status *apierrors.StatusError
	if !errors.As(err, &status) || !apierrors.IsInvalid(err) {
		t.Errorf("%s: %.300v", name, err)
		return
	}
	s := status.Status()
	// An update has the errors of metadata besides, which are few.
	if causes := len(s.Details.Causes); causes < 101 || causes > 105 {
		t.Errorf("%s: %d causes", name, causes)
	}
	if !strings.Contains(s.Message, "object: Too many: "+total) || !strings.Contains(s.Message, listedErrors) {
		t.Errorf("%s: a message of %d bytes ends with %s", name, len(s.Message), s.Message[max(0, len(s.Message)-300):])
	}
}

// L3: an API server makes the message of validation errors in time that is quadratic in their number. A ConfigMap of 9,900 bad
// keys took 3 to 12 seconds, and a pod with 27,000 bad variables 4 to 11. Nothing interrupts that.
func TestHostileObjectsOfManyErrorsAreAnsweredShortly(t *testing.T) {
	_, _, config := bounded(t, nil)
	config.QPS = -1
	kube := clientset(t, config)
	client := kube.CoreV1().RESTClient()
	const json = runtime.ContentTypeJSON
	const merge = string(types.MergePatchType)
	create := func(path, body string) {
		t.Helper()
		if err := send(t.Context(), client, "POST", path, json, body); err != nil {
			t.Fatal(err)
		}
	}
	const core = "/api/v1/namespaces/default/"
	create(configMapsPath, configMapJSON(`"name":"m"`, ""))
	create(core+"services", `{"metadata":{"name":"s"},"spec":{"type":"LoadBalancer","ports":[{"port":80}]}}`)
	create(core+"resourcequotas", `{"metadata":{"name":"q"}}`)
	create(core+"serviceaccounts", `{"metadata":{"name":"account"}}`)
	create("/api/v1/namespaces", `{"metadata":{"name":"n"}}`)
	const one = `{"name":"c","image":"i"}`
	const variable = `{"name":"V"}`
	create(core+"pods", `{"metadata":{"name":"p"},"spec":{"serviceAccountName":"account","containers":[`+one+`]}}`)
	create("/apis/apps/v1/namespaces/default/daemonsets",
		`{"metadata":{"name":"d"},"spec":{"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[`+one+`]}}}}`)

	bad := numbered(0, 9900, `"_/%05d/":""`)
	ips := numbered(0, 9500, `{"ip":"%d"}`)
	containers := numbered(0, 30, `{"name":"c%d","image":"i","env":[`+strings.Repeat(`{},`, 900)+variable+`]}`)
	for name, c := range map[string]struct{ verb, path, contentType, body, total string }{
		"keys":                     {"POST", configMapsPath, json, configMapJSON(`"name":"new"`, bad), "9900"},
		"keys instead":             {"PUT", configMapsPath + "/m", json, configMapJSON(`"name":"m"`, bad), "9900"},
		"keys in a patch":          {"PATCH", configMapsPath + "/m", merge, `{"data":{` + bad + `}}`, "9900"},
		"keys that are applied":    {"PATCH", configMapsPath + "/m", string(types.ApplyYAMLPatchType), configMapJSON(`"name":"m"`, bad), "9900"},
		"variables":                {"POST", core + "pods", json, `{"metadata":{"name":"new"},"spec":{"serviceAccountName":"account","containers":[` + containers + `]}}`, "27000"},
		"ephemeral containers":     {"PATCH", core + "pods/p/ephemeralcontainers", merge, `{"spec":{"ephemeralContainers":[` + containers + `]}}`, "27"},
		"addresses of a pod":       {"PATCH", core + "pods/p/status", merge, `{"status":{"podIPs":[` + ips + `]}}`, "9"},
		"addresses of a Service":   {"PATCH", core + "services/s/status", merge, `{"status":{"loadBalancer":{"ingress":[` + ips + `]}}}`, "9500"},
		"variables of a DaemonSet": {"PATCH", "/apis/apps/v1/namespaces/default/daemonsets/d", merge, `{"spec":{"template":{"spec":{"containers":[{"name":"c","image":"i","env":[` + strings.Repeat(`{},`, 9000) + variable + `]}]}}}}`, "9000"},
	} {
		began := time.Now()
		err := send(t.Context(), client, c.verb, c.path, c.contentType, c.body)
		t.Logf("%s: %d bytes in %s", name, len(c.body), time.Since(began).Round(time.Millisecond))
		checkInvalid(t, name, err, c.total)
	}

	few := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "new"}, Data: map[string]string{"/1": "", "/2": ""}}
	if _, err := kube.CoreV1().ConfigMaps("default").Create(t.Context(), few, metav1.CreateOptions{}); !apierrors.IsInvalid(err) ||
		strings.Contains(err.Error(), listedErrors) || !strings.Contains(err.Error(), "/2") {
		t.Errorf("few errors: %v", err)
	}
}

// defineValidated has a space serve a kind with what a schema can find wrong.
func defineValidated(t *testing.T, config *rest.Config, client rest.Interface) {
	t.Helper()
	definitions, err := apiextensions.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	list := func(items apiextensionsv1.JSONSchemaProps) apiextensionsv1.JSONSchemaProps {
		return apiextensionsv1.JSONSchemaProps{Type: "array", Items: &apiextensionsv1.JSONSchemaPropsOrArray{Schema: &items}}
	}
	allowed := apiextensionsv1.JSONSchemaProps{Type: "string"}
	for i := range 1000 {
		allowed.Enum = append(allowed.Enum, apiextensionsv1.JSON{Raw: fmt.Appendf(nil, "%q", fmt.Sprintf("value-%d", i))})
	}
	least, set := 10.0, "set"
	number := apiextensionsv1.JSONSchemaProps{Type: "integer"}
	numbers := list(number)
	numbers.XListType = &set
	ruled := number
	ruled.XValidations = apiextensionsv1.ValidationRules{{Rule: "self < 0", Message: "must be less than zero " + strings.Repeat("x", 10_000)}}
	optional := number
	optional.AnyOf = []apiextensionsv1.JSONSchemaProps{{Minimum: &least}, {Maximum: &least}}
	parent := apiextensionsv1.JSONSchemaProps{Type: "object", Properties: map[string]apiextensionsv1.JSONSchemaProps{}}
	for i := range 3000 {
		parent.Required = append(parent.Required, fmt.Sprintf("field-%d", i))
	}
	fields := map[string]apiextensionsv1.JSONSchemaProps{
		"texts": {Type: "object", AdditionalProperties: &apiextensionsv1.JSONSchemaPropsOrBool{
			Allows: true, Schema: &apiextensionsv1.JSONSchemaProps{Type: "string", MaxLength: new(int64(10))},
		}},
		"lists": list(list(number)), "numbers": numbers, "allowed": list(allowed), "ruled": list(ruled), "optional": list(optional),
	}
	for kind, properties := range map[string]map[string]apiextensionsv1.JSONSchemaProps{
		"checked": {"spec": {Type: "object", Properties: fields}, "status": {Type: "object", Properties: fields}},
		"parent":  {"spec": parent},
	} {
		d := definition(kind, 1)
		d.Spec.Versions[0].Subresources = &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}}
		d.Spec.Versions[0].Schema.OpenAPIV3Schema.Properties = properties
		if _, err := definitions.ApiextensionsV1().CustomResourceDefinitions().Create(t.Context(), d, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		eventually(t, func() error {
			return client.Get().AbsPath("/apis/example.com/v1/" + kind + "s").Do(t.Context()).Error()
		})
	}
}

// L3: a custom resource's errors are compared with each other as well, at each level, and an error may have a text of the
// definition's. 45 KB of values that an enum does not allow held the space's validation slot for more than two minutes.
func TestHostileCustomResourcesOfManyErrorsAreAnsweredShortly(t *testing.T) {
	_, _, config := bounded(t, nil)
	config.QPS = -1
	client := clientset(t, config).CoreV1().RESTClient()
	defineValidated(t, config, client)
	const (
		path, json, merge = "/apis/example.com/v1/namespaces/default/checkeds", runtime.ContentTypeJSON, string(types.MergePatchType)
		one               = path + "/one"
	)
	body := func(kind, name, part, fields string) string {
		return `{"apiVersion":"example.com/v1","kind":"` + kind + `","metadata":{"name":"` + name + `"},"` + part + `":{` + fields + `}}`
	}
	for name, fields := range map[string]string{
		"one":     "",
		"valid":   `"numbers":[` + numbered(0, 7000, "%d") + `],"texts":{` + numbered(0, 5000, `"%d":"a"`) + `}`,
		"ruled":   `"ruled":[` + numbered(-1000, 1000, "%d") + `]`,
		"options": `"optional":[` + numbered(0, 5000, "%d") + `]`,
	} {
		if err := send(t.Context(), client, "POST", path, json, body("checked", name, "spec", fields)); err != nil {
			t.Errorf("%s: %.300v", name, err)
		}
	}
	texts := `"texts":{` + numbered(0, 9900, `"%d":1`) + `}`
	long := `"texts":{` + numbered(0, 9900, `"%d":"01234567890"`) + `}`
	lists := `"lists":[` + numbered(0, 30, `[`+strings.Repeat(`"a",`, 900)+`"%d"]`) + `]`
	twice := `"numbers":[` + numbered(0, 3000, "%[1]d,%[1]d") + `]`
	allowed := `"allowed":[` + strings.Repeat(`"no",`, 9000) + `"no"]`
	ruled := `"ruled":[` + numbered(0, 9900, "%d") + `]`
	for name, c := range map[string]struct{ verb, path, contentType, body, total string }{
		"texts":          {"POST", path, json, body("checked", "new", "spec", texts), "3162"},
		"long texts":     {"POST", path, json, body("checked", "new", "spec", long), "3162"},
		"instead":        {"PATCH", one, merge, `{"spec":{` + texts + `}}`, "3162"},
		"applied":        {"PATCH", one, string(types.ApplyYAMLPatchType), body("checked", "one", "spec", long), "3162"},
		"a status":       {"PATCH", one + "/status", merge, `{"status":{` + texts + `}}`, "3162"},
		"lists":          {"POST", path, json, body("checked", "new", "spec", lists), ""},
		"numbers twice":  {"POST", path, json, body("checked", "new", "spec", twice), "3000"},
		"allowed values": {"POST", path, json, body("checked", "new", "spec", allowed), ""},
	} {
		began := time.Now()
		err := send(t.Context(), client, c.verb, c.path, c.contentType, c.body)
		t.Logf("%s: %d bytes in %s", name, len(c.body), time.Since(began).Round(time.Millisecond))
		checkInvalid(t, name, err, c.total)
	}
	for name, c := range map[string]struct{ verb, path, body, limit string }{
		"rules":             {"POST", path, body("checked", "new", "spec", ruled), "rule-error-steps"},
		"rules of a status": {"PUT", one + "/status", body("checked", "one", "status", ruled), "rule-error-steps"},
		"required fields":   {"POST", "/apis/example.com/v1/namespaces/default/parents", body("parent", "new", "spec", ""), "value-errors"},
	} {
		began := time.Now()
		err := send(t.Context(), client, c.verb, c.path, json, c.body)
		t.Logf("%s: %d bytes in %s", name, len(c.body), time.Since(began).Round(time.Millisecond))
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "limit "+c.limit) {
			t.Errorf("%s: %.300v", name, err)
		}
	}
	if err := send(t.Context(), client, "PATCH", path+"/valid", merge, `{"spec":{"allowed":["value-1"]}}`); err != nil {
		t.Errorf("a patch of a large one: %v", err)
	}
	if err := send(t.Context(), client, "PATCH", one, merge, `{"spec":{"allowed":["no"]}}`); !apierrors.IsInvalid(err) {
		t.Errorf("one error: %v", err)
	}
}

// L3: upstream validates some kinds in two ways, and compares the errors of one with each other, and with those of the other. 27 KB
// of empty variables in a ReplicationController took more than half a minute.
func TestHostileObjectsOfManyErrorsOfOtherKindsAreAnsweredShortly(t *testing.T) {
	_, _, config := bounded(t, nil)
	config.QPS = -1
	client := clientset(t, config).CoreV1().RESTClient()
	bad := numbered(0, 9800, `"_/%05d/":"/"`)
	empty := strings.Repeat(`{},`, 9000) + `{}`
	variables := `{"containers":[{"name":"c","image":"i","env":[` + empty + `]}]}`
	for name, c := range map[string]struct{ path, body string }{
		"runtimeclass selector":    {"/apis/node.k8s.io/v1/runtimeclasses", `{"metadata":{"name":"r"},"handler":"h","scheduling":{"nodeSelector":{` + bad + `}}}`},
		"runtimeclass tolerations": {"/apis/node.k8s.io/v1/runtimeclasses", `{"metadata":{"name":"r"},"handler":"h","scheduling":{"tolerations":[` + numbered(0, 9000, `{"key":"/%d"}`) + `]}}`},
		"runtimeclass overhead":    {"/apis/node.k8s.io/v1/runtimeclasses", `{"metadata":{"name":"r"},"handler":"h","overhead":{"podFixed":{` + numbered(0, 9800, `"_/%05d/":"1"`) + `}}}`},
		"claim":                    {"/apis/resource.k8s.io/v1/namespaces/default/resourceclaims", `{"metadata":{"name":"r"},"spec":{"devices":{"requests":[` + empty + `]}}}`},
		"claim config":             {"/apis/resource.k8s.io/v1/namespaces/default/resourceclaims", `{"metadata":{"name":"r"},"spec":{"devices":{"config":[` + empty + `]}}}`},
		"claim constraints":        {"/apis/resource.k8s.io/v1/namespaces/default/resourceclaims", `{"metadata":{"name":"r"},"spec":{"devices":{"constraints":[` + empty + `]}}}`},
		"slice":                    {"/apis/resource.k8s.io/v1/resourceslices", `{"metadata":{"name":"r"},"spec":{"driver":"d","allNodes":true,"pool":{"name":"p","resourceSliceCount":1},"devices":[` + empty + `]}}`},
		"class selectors":          {"/apis/resource.k8s.io/v1/deviceclasses", `{"metadata":{"name":"r"},"spec":{"selectors":[` + empty + `]}}`},
		"class config":             {"/apis/resource.k8s.io/v1/deviceclasses", `{"metadata":{"name":"r"},"spec":{"config":[` + empty + `]}}`},
		"role":                     {"/apis/rbac.authorization.k8s.io/v1/clusterroles", `{"metadata":{"name":"r"},"rules":[` + strings.Repeat(`{},`, 900) + `{}]}`},
		"binding":                  {"/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"metadata":{"name":"r"},"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"},"subjects":[` + strings.Repeat(`{},`, 900) + `{}]}`},
		"controller":               {"/api/v1/namespaces/default/replicationcontrollers", `{"metadata":{"name":"r"},"spec":{"selector":{"a":"b"},"template":{"metadata":{"labels":{"a":"b"}},"spec":` + variables + `}}}`},
		"cron job":                 {"/apis/batch/v1/namespaces/default/cronjobs", `{"metadata":{"name":"r"},"spec":{"schedule":"@daily","jobTemplate":{"spec":{"template":{"spec":` + variables + `}}}}}`},
		"policy":                   {"/apis/networking.k8s.io/v1/namespaces/default/networkpolicies", `{"metadata":{"name":"r"},"spec":{"podSelector":{},"ingress":[{"ports":[` + strings.Repeat(`{"port":0},`, 9000) + `{}]}]}}`},
		"storage class":            {"/apis/storage.k8s.io/v1/storageclasses", `{"metadata":{"name":"r"},"provisioner":"p","allowedTopologies":[{"matchLabelExpressions":[` + empty + `]}]}`},
		"slices":                   {"/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", `{"metadata":{"name":"r"},"addressType":"IPv4","endpoints":[` + strings.Repeat(`{"addresses":["1"]},`, 900) + `{}]}`},
		"zones":                    {"/apis/discovery.k8s.io/v1/namespaces/default/endpointslices", `{"metadata":{"name":"r"},"addressType":"IPv4","endpoints":[{"addresses":["1.1.1.1"],"hints":{"forZones":[` + empty + `]}}]}`},
		"request":                  {"/apis/certificates.k8s.io/v1/certificatesigningrequests", `{"metadata":{"name":"r"},"spec":{"request":"YQ==","signerName":"a/b","usages":[` + numbered(0, 9000, `"%d"`) + `]}}`},
		"policy binding":           {"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", `{"metadata":{"name":"r"},"spec":{"policyName":"p","validationActions":["Deny"],"matchResources":{"resourceRules":[` + empty + `]}}}`},
		"policy binding actions":   {"/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings", `{"metadata":{"name":"r"},"spec":{"policyName":"p","validationActions":[` + numbered(0, 9000, `"%d"`) + `]}}`},
		"flow schema":              {"/apis/flowcontrol.apiserver.k8s.io/v1/flowschemas", `{"metadata":{"name":"r"},"spec":{"priorityLevelConfiguration":{"name":"p"},"rules":[` + empty + `]}}`},
		"webhooks":                 {"/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", `{"metadata":{"name":"r"},"webhooks":[` + empty + `]}`},
		"definition": {"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"metadata":{"name":"as.example.com"},"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"as","kind":"A"},"versions":[{"name":"v1","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object","properties":{` +
			numbered(0, 9800, `"%d":{}`) + `}}}}]}}`},
		"printer columns": {"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", `{"metadata":{"name":"as.example.com"},"spec":{"group":"example.com","scope":"Namespaced","names":{"plural":"as","kind":"A"},"versions":[{"name":"v1","served":true,"storage":true,"additionalPrinterColumns":[` + empty + `],"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`},
	} {
		began := time.Now()
		err := send(t.Context(), client, "POST", c.path, runtime.ContentTypeJSON, c.body)
		t.Logf("%s: %d bytes in %s", name, len(c.body), time.Since(began).Round(time.Millisecond))
		var status *apierrors.StatusError
		if !errors.As(err, &status) || !apierrors.IsInvalid(err) || len(status.Status().Details.Causes) > 101 {
			t.Errorf("%s: %.300v", name, err)
		}
	}
}

// L3: to scale a custom resource has an API server validate all of it, by a schema that may have changed since it was stored.
func TestHostileScaledObjectsOfManyErrorsAreAnsweredShortly(t *testing.T) {
	_, _, config := bounded(t, nil)
	client := clientset(t, config).Discovery().RESTClient()
	const (
		json        = runtime.ContentTypeJSON
		definitions = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
		path        = "/apis/example.com/v1/namespaces/default/scaleds"
	)
	definition := func(values string) string {
		return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"scaleds.example.com"},"spec":{"group":"example.com","scope":"Namespaced",
			"names":{"plural":"scaleds","kind":"Scaled"},"versions":[{"name":"v1","served":true,"storage":true,
			"subresources":{"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas"}},"schema":{"openAPIV3Schema":{"type":"object","properties":{
			"status":{"type":"object","properties":{"replicas":{"type":"integer"}}},
			"spec":{"type":"object","properties":{"replicas":{"type":"integer"},"lists":{"type":"array","items":{"type":"array","items":{"type":"string"` + values + `}}}}}}}}}]}}`
	}
	if err := send(t.Context(), client, "POST", definitions, json, definition("")); err != nil {
		t.Fatal(err)
	}
	list := `[` + strings.TrimSuffix(strings.Repeat(`"a",`, 100), ",") + `]`
	object := func(name string, lists int) string {
		return `{"apiVersion":"example.com/v1","kind":"Scaled","metadata":{"name":"` + name + `"},"spec":{"replicas":1,"lists":[` + strings.TrimSuffix(strings.Repeat(list+",", lists), ",") + `]}}`
	}
	eventually(t, func() error { return send(t.Context(), client, "POST", path, json, object("few", 0)) })
	if err := send(t.Context(), client, "POST", path, json, object("many", 100)); err != nil {
		t.Fatal(err)
	}
	scale := func(name string) error {
		return send(t.Context(), client, "PATCH", path+"/"+name+"/scale", string(types.MergePatchType), `{"spec":{"replicas":2}}`)
	}
	for _, name := range []string{"few", "many"} {
		if err := scale(name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	patch := `{"spec":{"versions":` + regexp.MustCompile(`(?s)"versions":(.*)}}$`).FindStringSubmatch(definition(`,"enum":[` + numbered(0, 1000, `"value-%d"`) + `]`))[1] + `}}`
	if err := send(t.Context(), client, "PATCH", definitions+"/scaleds.example.com", string(types.MergePatchType), patch); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		err := scale("many")
		var status *apierrors.StatusError
		if !errors.As(err, &status) || !apierrors.IsInvalid(err) || len(status.Status().Details.Causes) > 101 {
			return fmt.Errorf("an object of 10,000 errors: %.300w", err)
		}
		return nil
	})
	if err := scale("few"); err != nil {
		t.Errorf("an object without errors: %v", err)
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics/legacyregistry"

	"github.com/berth-dev/berth/vcluster/unmetered"
)

// chosen is part of all that the tenant of the test below chooses.
const chosen = "zzchosen"

// chosenObjects are of all kinds whose names, or parts, upstream has metrics of, by path. A later one may need an earlier one.
func chosenObjects() [][2]string {
	failing := `"clientConfig":{"service":{"name":"zzchosen","namespace":"zzchosen"},"caBundle":""},"sideEffects":"None","admissionReviewVersions":["v1"],"timeoutSeconds":1`
	rules := `"rules":[{"apiGroups":["*"],"apiVersions":["*"],"operations":["*"],"resources":["secrets","zzchosens"]}]`
	hooks := func(kind string) string {
		return `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"` + kind + `","metadata":{"name":"zzchosen"},"webhooks":[
			{"name":"calls.zzchosen.example.com","failurePolicy":"Ignore",` + failing + `,` + rules + `},
			{"name":"excludes.zzchosen.example.com","matchConditions":[{"name":"zzchosen","expression":"false"}],` + failing + `,` + rules + `},
			{"name":"errs.zzchosen.example.com","failurePolicy":"Ignore","matchConditions":[{"name":"zzchosen","expression":"object.zzchosen == 1"}],` + failing + `,` + rules + `},
			{"name":"refuses.zzchosen.example.com","matchConditions":[{"name":"zzchosen","expression":"object.metadata.name == 'refused'"}],` + failing + `,` + rules + `}]}`
	}
	policy := func(kind, rest string) string {
		return `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"` + kind + `","metadata":{"name":"zzchosen"},"spec":{
			"matchConstraints":{"resourceRules":[{"apiGroups":[""],"apiVersions":["v1"],"operations":["*"],"resources":["secrets"]}]},
			"matchConditions":[{"name":"zzchosen","expression":"object.metadata.name != 'excluded'"}],"failurePolicy":"Ignore",` + rest + `}}`
	}
	binding := func(kind, rest string) string {
		return `{"apiVersion":"admissionregistration.k8s.io/v1","kind":"` + kind + `Binding","metadata":{"name":"zzchosen"},"spec":{"policyName":"zzchosen"` + rest + `}}`
	}
	definition := func(group, conversion string) string {
		return `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"zzchosens.` + group + `"},"spec":{"group":"` + group + `","scope":"Namespaced",
			"names":{"plural":"zzchosens","singular":"zzchosen","kind":"Zzchosen","shortNames":["zzchosenshort"],"categories":["zzchosen"]},` + conversion + `
			"versions":[{"name":"v1zzchosen1","served":true,"storage":true,"deprecated":true,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}},
				"subresources":{"status":{},"scale":{"specReplicasPath":".spec.replicas","statusReplicasPath":".status.replicas"}}},
			{"name":"v2","served":true,"storage":false,"schema":{"openAPIV3Schema":{"type":"object","x-kubernetes-preserve-unknown-fields":true}}}]}}`
	}
	const registration = "/apis/admissionregistration.k8s.io/v1/"
	return [][2]string{
		{"/api/v1/namespaces", `{"metadata":{"name":"zzchosen"}}`},
		{"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition("zzchosen.example.com", "")},
		{"/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition("converted.zzchosen.example.com",
			`"conversion":{"strategy":"Webhook","webhook":{"conversionReviewVersions":["v1"],"clientConfig":{"service":{"name":"zzchosen","namespace":"zzchosen"}}}},`)},
		{"/apis/apiregistration.k8s.io/v1/apiservices", `{"metadata":{"name":"v1.served.zzchosen.example.com"},"spec":{"group":"served.zzchosen.example.com","version":"v1",
			"groupPriorityMinimum":10,"versionPriority":10,"service":{"name":"zzchosen","namespace":"zzchosen"},"insecureSkipTLSVerify":true}}`},
		{"/apis/zzchosen.example.com/v1zzchosen1/namespaces/zzchosen/zzchosens", `{"apiVersion":"zzchosen.example.com/v1zzchosen1","kind":"Zzchosen","metadata":{"name":"zzchosen"},"spec":{"replicas":1}}`},
		{"/apis/converted.zzchosen.example.com/v1zzchosen1/namespaces/zzchosen/zzchosens", `{"apiVersion":"converted.zzchosen.example.com/v1zzchosen1","kind":"Zzchosen","metadata":{"name":"zzchosen"}}`},
		{"/api/v1/namespaces/zzchosen/serviceaccounts", `{"metadata":{"name":"zzchosen"}}`},
		{"/api/v1/namespaces/zzchosen/serviceaccounts/zzchosen/token", `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`},
		{"/api/v1/namespaces/zzchosen/secrets", `{"metadata":{"name":"zzchosentoken","annotations":{"kubernetes.io/service-account.name":"zzchosen"}},"type":"kubernetes.io/service-account-token"}`},
		{"/api/v1/namespaces/zzchosen/resourcequotas", `{"metadata":{"name":"zzchosen"},"spec":{"hard":{"count/zzchosens.zzchosen.example.com":"5","requests.zzchosen.example.com/a":"5"}}}`},
		{"/api/v1/namespaces/zzchosen/services", `{"metadata":{"name":"zzchosen"},"spec":{"selector":{"a":"zzchosen"},"ports":[{"port":443}]}}`},
		{"/api/v1/namespaces/zzchosen/pods", `{"metadata":{"name":"zzchosen","labels":{"a":"zzchosen"}},"spec":{"schedulerName":"zzchosen","priorityClassName":"","containers":[{"name":"zzchosen","image":"zzchosen"}]}}`},
		{"/api/v1/namespaces/zzchosen/events", `{"metadata":{"name":"zzchosen"},"involvedObject":{"namespace":"zzchosen","kind":"Zzchosen"},"reason":"Zzchosen","source":{"component":"zzchosen"}}`},
		{"/apis/apps/v1/namespaces/zzchosen/deployments", `{"metadata":{"name":"zzchosen"},"spec":{"replicas":0,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"c"}]}}}}`},
		{"/apis/apps/v1/namespaces/zzchosen/statefulsets", `{"metadata":{"name":"zzchosen"},"spec":{"replicas":1,"podManagementPolicy":"Parallel","serviceName":"zzchosen","selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"c","image":"c"}]}}}}`},
		{"/apis/batch/v1/namespaces/zzchosen/cronjobs", `{"metadata":{"name":"zzchosen"},"spec":{"schedule":"* * * * *","jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"c"}]}}}}}}`},
		{"/apis/batch/v1/namespaces/zzchosen/jobs", `{"metadata":{"name":"zzchosen"},"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"c","image":"c"}]}}}}`},
		{"/apis/autoscaling/v2/namespaces/zzchosen/horizontalpodautoscalers", `{"metadata":{"name":"zzchosen"},"spec":{"minReplicas":1,"maxReplicas":3,"scaleTargetRef":{"apiVersion":"apps/v1","kind":"StatefulSet","name":"zzchosen"},
			"metrics":[{"type":"Pods","pods":{"metric":{"name":"zzchosen"},"target":{"type":"AverageValue","averageValue":"1"}}},{"type":"External","external":{"metric":{"name":"zzchosen"},"target":{"type":"Value","value":"1"}}}]}}`},
		{"/apis/policy/v1/namespaces/zzchosen/poddisruptionbudgets", `{"metadata":{"name":"zzchosen"},"spec":{"minAvailable":1,"selector":{"matchLabels":{"a":"b"}}}}`},
		{"/apis/storage.k8s.io/v1/storageclasses", `{"metadata":{"name":"zzchosen"},"provisioner":"zzchosen"}`},
		{"/api/v1/namespaces/zzchosen/persistentvolumeclaims", `{"metadata":{"name":"zzchosen"},"spec":{"storageClassName":"zzchosen","accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}`},
		{"/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", `{"spec":{"resourceAttributes":{"group":"zzchosen","resource":"zzchosen","verb":"zzchosen"}}}`},
		{"/apis/authentication.k8s.io/v1/tokenreviews", `{"spec":{"token":"zzchosen","audiences":["zzchosen"]}}`},
		{registration + "mutatingadmissionpolicies", policy("MutatingAdmissionPolicy", `"reinvocationPolicy":"Never","mutations":[{"patchType":"ApplyConfiguration","applyConfiguration":{"expression":"Object{metadata: Object.metadata{labels: {'zzchosen': 'a'}}}"}}]`)},
		{registration + "mutatingadmissionpolicybindings", binding("MutatingAdmissionPolicy", "")},
		{registration + "validatingadmissionpolicies", policy("ValidatingAdmissionPolicy", `"validations":[{"expression":"object.metadata.name != 'denied'"},{"expression":"object.zzchosen == 1"}],"auditAnnotations":[{"key":"zzchosen","valueExpression":"'zzchosen'"}]`)},
		{registration + "validatingadmissionpolicybindings", binding("ValidatingAdmissionPolicy", `,"validationActions":["Warn","Audit"]`)},
		{registration + "mutatingwebhookconfigurations", hooks("MutatingWebhookConfiguration")},
		{registration + "validatingwebhookconfigurations", hooks("ValidatingWebhookConfiguration")},
	}
}

// L3: metrics of upstream's have labels for names that tenants choose. A process keeps each for good: with other names again and
// again, those of webhooks alone, which no limit counted, filled it at some megabytes a second.
func TestHostileMetricsHoldNothingThatATenantChooses(t *testing.T) {
	gateway := newTestGateway(t)
	p := gateway.start(t, gateway.config(t, "metrics"))
	config := rest.CopyConfig(admin(t, p))
	config.UserAgent = chosen
	client := clientset(t, config).Discovery().RESTClient()
	for _, o := range chosenObjects() {
		eventually(t, func() error {
			if err := send(t.Context(), client, "POST", o[0], runtime.ContentTypeJSON, o[1]); err != nil {
				return fmt.Errorf("%s: %w", o[0], err)
			}
			return nil
		})
	}
	answers := map[string]string{}
	ask := func(verb, path, contentType, body string) {
		answers[verb+" "+path+" "+contentType] = fmt.Sprint(send(t.Context(), client, verb, path, contentType, body))
	}
	const things = "/apis/zzchosen.example.com/v1zzchosen1/namespaces/zzchosen/zzchosens"
	for _, path := range []string{
		things, things + "/zzchosen", things + "/zzchosen/status", things + "/zzchosen/scale", things + "?labelSelector=zzchosen", "/apis/zzchosen.example.com/v1zzchosen1/zzchosens",
		"/apis/converted.zzchosen.example.com/v2/zzchosens", "/apis/zzchosen.example.com", "/apis/served.zzchosen.example.com/v1/zzchosens", "/apis/other.zzchosen.example.com/v1/zzchosens",
		"/zzchosen", "/api/zzchosen", "/apis/zzchosen", "/api/v1/zzchosens", "/api/v1/namespaces/zzchosen/zzchosen/zzchosen", "/api/v1/namespaces/zzchosen/pods/zzchosen/zzchosen",
		"/api/v1/namespaces/zzchosen/services/zzchosen/proxy/zzchosen", "/api/v1/namespaces/zzchosen/pods/zzchosen/log", "/openapi/v3/apis/zzchosen.example.com/v1zzchosen1", "/healthz/zzchosen",
	} {
		ask("GET", path, runtime.ContentTypeJSON, "")
	}
	ask("ZZCHOSEN", things, runtime.ContentTypeJSON, "")
	ask("PATCH", things+"/zzchosen", "application/zzchosen+json", "{}")
	ask("PATCH", things+"/zzchosen", "application/merge-patch+json", `{"spec":{"replicas":2}}`)
	ask("PATCH", things+"/zzchosen", "application/apply-patch+yaml", `{"apiVersion":"zzchosen.example.com/v1zzchosen1","kind":"Zzchosen","metadata":{"name":"zzchosen"},"spec":{"replicas":3}}`)
	ask("DELETE", things+"/zzchosen", runtime.ContentTypeJSON, "")
	ask("DELETE", things, runtime.ContentTypeJSON, "")
	var found []string
	eventually(t, func() error { // policies and webhooks are not known at once
		for _, name := range []string{"usual", "denied", "excluded", "refused"} {
			ask("POST", "/api/v1/namespaces/default/secrets", runtime.ContentTypeJSON, `{"metadata":{"generateName":"`+name+`"}}`)
			ask("POST", "/api/v1/namespaces/default/secrets", runtime.ContentTypeJSON, `{"metadata":{"name":"`+name+`"}}`)
		}
		unseen := unmetered.Names()
		found = nil
		families, err := legacyregistry.DefaultGatherer.Gather()
		for _, family := range families {
			delete(unseen, family.GetName())
			for _, metric := range family.GetMetric() {
				for _, label := range metric.GetLabel() {
					if strings.Contains(strings.ToLower(label.GetValue()), chosen) {
						found = append(found, fmt.Sprintf("%s has label %s: %s", family.GetName(), label.GetName(), label.GetValue()))
					}
				}
			}
		}
		if err == nil && len(unseen) > 0 {
			err = fmt.Errorf("nothing is counted by %v", slices.Sorted(maps.Keys(unseen)))
		}
		return err
	})
	slices.Sort(found)
	for _, f := range slices.Compact(found) {
		// Its space's for as long as that is awake, and some bytes for each API service.
		if !strings.HasPrefix(f, "aggregator_unavailable_apiservice has") {
			t.Error(f)
		}
	}
	if t.Failed() {
		for request, answer := range answers {
			t.Logf("%s: %.150s", request, answer)
		}
	}
}

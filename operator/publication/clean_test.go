// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package publication

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"
)

// P1: what the host assigned to a source is not published.
func TestCleanRemovesWhatIsOfTheHost(t *testing.T) {
	for name, c := range map[string]struct{ source, want string }{
		"metadata and status": {
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: b, uid: x, resourceVersion: "1", generation: 2, creationTimestamp: "2026-01-01T00:00:00Z",
			  selfLink: /x, generateName: a-, managedFields: [{manager: x}], ownerReferences: [{name: x}], finalizers: [x],
			  labels: {a: b, berth.dev/publish: "true", tree.berth.dev/x: "1"}, annotations: {c: d, berth.dev/x: z, kubectl.kubernetes.io/last-applied-configuration: "{}"}},
			  data: {a: b}, status: {x: y}}`,
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, namespace: b, labels: {a: b}, annotations: {c: d}}, data: {a: b}}`,
		},
		"no labels left": {
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: a, labels: {berth.dev/publish: "true"}, annotations: {pv.kubernetes.io/bind-completed: "yes"}}}`,
			`{apiVersion: v1, kind: ConfigMap, metadata: {name: a}}`,
		},
		"a Service": {
			`{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {type: NodePort, clusterIP: 10.0.0.1, clusterIPs: [10.0.0.1], ipFamilies: [IPv4], ipFamilyPolicy: SingleStack,
			  healthCheckNodePort: 3, ports: [{port: 80, nodePort: 30000}], selector: {a: b}}, status: {loadBalancer: {}}}`,
			`{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {type: NodePort, ports: [{port: 80}], selector: {a: b}}}`,
		},
		"a headless Service": {
			`{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {clusterIP: None, clusterIPs: [None]}}`,
			`{apiVersion: v1, kind: Service, metadata: {name: a}, spec: {clusterIP: None}}`,
		},
		"a claim": {
			`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a, annotations: {volume.kubernetes.io/selected-node: x}}, spec: {volumeName: x, storageClassName: y}}`,
			`{apiVersion: v1, kind: PersistentVolumeClaim, metadata: {name: a}, spec: {storageClassName: y}}`,
		},
		"a ServiceAccount": {
			`{apiVersion: v1, kind: ServiceAccount, metadata: {name: a}, secrets: [{name: x}], imagePullSecrets: [{name: z}]}`,
			`{apiVersion: v1, kind: ServiceAccount, metadata: {name: a}, imagePullSecrets: [{name: z}]}`,
		},
		"a Namespace": {
			`{apiVersion: v1, kind: Namespace, metadata: {name: a, labels: {kubernetes.io/metadata.name: a, b: c}}, spec: {finalizers: [kubernetes]}}`,
			`{apiVersion: v1, kind: Namespace, metadata: {name: a, labels: {b: c}}}`,
		},
		"a Job": {
			`{apiVersion: batch/v1, kind: Job, metadata: {name: a}, spec: {selector: {matchLabels: {x: y}}, template: {metadata: {labels: {controller-uid: x, a: b}}, spec: {restartPolicy: Never}}}}`,
			`{apiVersion: batch/v1, kind: Job, metadata: {name: a}, spec: {template: {metadata: {labels: {a: b}}, spec: {restartPolicy: Never}}}}`,
		},
		"an aggregated ClusterRole": {
			`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}, aggregationRule: {clusterRoleSelectors: [{matchLabels: {a: b}}]}, rules: [{verbs: [get]}]}`,
			`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}, rules: [{verbs: [get]}]}`,
		},
		"a ClusterRole": {
			`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}, rules: [{verbs: [get]}]}`,
			`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: a}, rules: [{verbs: [get]}]}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			source := parse(t, c.source)
			before := source.DeepCopy()
			if diff := cmp.Diff(parse(t, c.want).Object, Clean(source)); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, source); diff != "" {
				t.Errorf("the source was changed: %s", diff)
			}
		})
	}
}

// P1
func TestRefuseRefusesWhatBreaksASpace(t *testing.T) {
	for object, want := range map[string]bool{
		`{apiVersion: v1, kind: Node, metadata: {name: a}}`:                                                                                       true,
		`{apiVersion: v1, kind: Pod, metadata: {name: a}}`:                                                                                        true,
		`{apiVersion: v1, kind: Namespace, metadata: {name: default}}`:                                                                            true,
		`{apiVersion: v1, kind: Namespace, metadata: {name: kube-public}}`:                                                                        true,
		`{apiVersion: v1, kind: Namespace, metadata: {name: team}}`:                                                                               false,
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: kube-root-ca.crt}}`:                                                                   true,
		`{apiVersion: v1, kind: ConfigMap, metadata: {name: default}}`:                                                                            false,
		`{apiVersion: v1, kind: ServiceAccount, metadata: {name: default}}`:                                                                       true,
		`{apiVersion: v1, kind: Secret, type: kubernetes.io/service-account-token, metadata: {name: a}}`:                                          true,
		`{apiVersion: v1, kind: Secret, type: bootstrap.kubernetes.io/token, metadata: {name: a}}`:                                                true,
		`{apiVersion: v1, kind: Secret, type: kubernetes.io/tls, metadata: {name: a}}`:                                                            false,
		`{apiVersion: berth.dev/v1alpha1, kind: Tenant, metadata: {name: a}}`:                                                                     true,
		`{apiVersion: x.berth.dev/v1, kind: Thing, metadata: {name: a}}`:                                                                          true,
		`{apiVersion: notberth.dev/v1, kind: Thing, metadata: {name: a}}`:                                                                         false,
		`{apiVersion: apiregistration.k8s.io/v1, kind: APIService, metadata: {name: v1.apps}}`:                                                    true,
		`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: a}, spec: {group: berth.dev}}`:                    true,
		`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: a}, spec: {group: example.com}}`:                  false,
		`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: admin, labels: {kubernetes.io/bootstrapping: defaults}}}`: true,
		`{apiVersion: rbac.authorization.k8s.io/v1, kind: ClusterRole, metadata: {name: mine}}`:                                                   false,
		`{apiVersion: scheduling.k8s.io/v1, kind: PriorityClass, metadata: {name: system-node-critical}}`:                                         true,
	} {
		if reason := Refuse(parse(t, object)); (reason != "") != want {
			t.Errorf("%s: %q", object, reason)
		}
	}
}

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	content, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(content); err != nil {
		t.Fatal(err)
	}
	return u
}

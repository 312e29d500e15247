// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package charts

import (
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	_ "sigs.k8s.io/controller-runtime/pkg/controller" // registers the metrics of controllers
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/yaml"

	appsv1 "k8s.io/api/apps/v1"
)

// exposed has everything by which Berth is reached and observed from outside.
var exposed = []string{
	"advertise=https://berth.example.com", "tls.certManager.enabled=true", "tls.certManager.issuerRef.name=company", "tls.certManager.duration=2160h",
	"ingress.enabled=true", "ingress.className=nginx", `ingress.annotations.nginx\.ingress\.kubernetes\.io/ssl-passthrough=x`,
	"tlsRoute.enabled=true", "tlsRoute.parentRefs[0].name=public", "tlsRoute.parentRefs[0].namespace=gateways",
	"monitoring.podMonitor.enabled=true", "monitoring.podMonitor.labels.release=prometheus", "monitoring.rules.enabled=true", "monitoring.rules.disabled={BerthDown}",
	"monitoring.dashboards.enabled=true", "networkPolicy.enabled=true",
}

// renderAny renders objects of any kind, those of extensions, too.
func renderAny(t *testing.T, values ...string) (objects []*unstructured.Unstructured) {
	t.Helper()
	args := []string{"template", "berth", "berth", "--namespace", "platform"}
	for _, v := range values {
		args = append(args, "--set", v)
	}
	out, problems, err := helm(t, args...)
	if err != nil {
		t.Fatalf("%v: %s", err, problems)
	}
	for _, document := range strings.Split(out, "\n---\n") {
		object := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(document), &object.Object); err != nil {
			t.Fatalf("%v:\n%s", err, document)
		}
		if object.Object != nil {
			objects = append(objects, object)
		}
	}
	return objects
}

// ofKind returns the only object of a kind.
func ofKind(t *testing.T, objects []*unstructured.Unstructured, kind string) *unstructured.Unstructured {
	t.Helper()
	i := slices.IndexFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() == kind })
	if i < 0 {
		t.Fatalf("there is no %s", kind)
	}
	return objects[i]
}

// X1, X2: the endpoint's certificate comes from a Secret, or from cert-manager by one, for the host that tenants use.
func TestTheEndpointsCertificateComesFromASecret(t *testing.T) {
	certificate := ofKind(t, renderAny(t, exposed...), "Certificate")
	names, _, _ := unstructured.NestedStringSlice(certificate.Object, "spec", "dnsNames")
	issued, _, _ := unstructured.NestedString(certificate.Object, "spec", "secretName")
	if !slices.Equal(names, []string{"berth.example.com"}) || issued != "berth-tls" {
		t.Errorf("the certificate is for %v, in %s", names, issued)
	}
	for secret, values := range map[string][]string{
		"own": {"tls.secretName=own"}, "berth-tls": {"tls.certManager.enabled=true", "tls.certManager.issuerRef.name=company"},
		"both": {"tls.secretName=both", "tls.certManager.enabled=true", "tls.certManager.issuerRef.name=company"}, "": nil,
	} {
		var objects []string
		for _, o := range renderAny(t, values...) {
			if o.GetKind() == "StatefulSet" {
				text, err := yaml.Marshal(o.Object)
				if err != nil {
					t.Fatal(err)
				}
				objects = append(objects, string(text))
			}
		}
		var set appsv1.StatefulSet
		if err := yaml.UnmarshalStrict([]byte(objects[0]), &set); err != nil {
			t.Fatal(err)
		}
		c := set.Spec.Template.Spec.Containers[0]
		i := slices.IndexFunc(set.Spec.Template.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "tls" })
		if secret == "" {
			if i >= 0 || slices.ContainsFunc(c.Args, func(a string) bool { return strings.HasPrefix(a, "--tls") }) {
				t.Errorf("without a Secret, Berth gets %v", c.Args)
			}
			continue
		}
		mounted := slices.ContainsFunc(c.VolumeMounts, func(m corev1.VolumeMount) bool {
			return m.Name == "tls" && m.MountPath == "/etc/berth-tls" && m.ReadOnly
		})
		if i < 0 || set.Spec.Template.Spec.Volumes[i].Secret.SecretName != secret || !mounted ||
			!slices.Contains(c.Args, "--tls-cert-file=/etc/berth-tls/tls.crt") || !slices.Contains(c.Args, "--tls-key-file=/etc/berth-tls/tls.key") || !slices.Contains(c.Args, "--tls-ca-file=/etc/berth-tls/ca.crt") {
			t.Errorf("with %v, Berth gets %v and the volumes %v", values, c.Args, set.Spec.Template.Spec.Volumes)
		}
	}
}

// A1, A2, A4, A5, A7, T4, Z4: the credentials of users that the platform gives out come from the keys of a Secret.
func TestCredentialsOfUsersComeFromASecret(t *testing.T) {
	for _, c := range []struct{ values, args []string }{
		{nil, nil},
		{[]string{"spaceDomain=spaces.example.com"}, []string{"--space-domain=spaces.example.com"}},
		{[]string{"clients.secretName=users"}, nil},
		{[]string{"clients.caKey=ca.crt"}, nil},
		{[]string{"clients.secretName=users", "clients.authenticationConfigKey=authentication.yaml"}, []string{"--authentication-config=/etc/berth-clients/authentication.yaml"}},
		{[]string{"clients.secretName=users", "clients.caKey=ca.crt", "clients.tokensKey=tokens.csv", "clients.passwordsKey=passwords.csv"},
			[]string{"--client-ca-file=/etc/berth-clients/ca.crt", "--token-auth-file=/etc/berth-clients/tokens.csv", "--basic-auth-file=/etc/berth-clients/passwords.csv"}},
		{[]string{"clients.secretName=users", "clients.authorizationPolicyKey=policy.jsonl"}, []string{"--authorization-policy-file=/etc/berth-clients/policy.jsonl"}},
		{[]string{"clients.tokenWebhook.configKey=webhook.kubeconfig"}, nil},
		{[]string{"clients.defaultTenant=everybody"}, []string{"--default-tenant=everybody"}},
		{[]string{"clients.secretName=users", "clients.tokenWebhook.configKey=a", "clients.tokenWebhook.rolesExtra=example.com/roles", "clients.accessWebhook.configKey=b", "clients.accessWebhook.version=v1"}, []string{
			"--authentication-token-webhook-config-file=/etc/berth-clients/a", "--authentication-token-webhook-version=v1beta1", "--authentication-token-webhook-cache-ttl=2m",
			"--authentication-token-webhook-tenant-extra=alpha.kubernetes.io/identity/user/domain/name", "--authentication-token-webhook-roles-extra=example.com/roles",
			"--authentication-token-webhook-project-extra=alpha.kubernetes.io/identity/project/id",
			"--authorization-webhook-config-file=/etc/berth-clients/b", "--authorization-webhook-version=v1", "--authorization-webhook-cache-authorized-ttl=5m", "--authorization-webhook-cache-unauthorized-ttl=30s",
		}},
	} {
		text, err := yaml.Marshal(ofKind(t, renderAny(t, c.values...), "StatefulSet").Object)
		if err != nil {
			t.Fatal(err)
		}
		var set appsv1.StatefulSet
		if err := yaml.UnmarshalStrict(text, &set); err != nil {
			t.Fatal(err)
		}
		pod := set.Spec.Template.Spec
		got := slices.DeleteFunc(slices.Clone(pod.Containers[0].Args), func(a string) bool {
			return !strings.HasPrefix(a, "--client-ca") && !strings.Contains(a, "-auth-file") && !strings.HasPrefix(a, "--authentication-config") && !strings.HasPrefix(a, "--authorization-") && !strings.Contains(a, "-webhook-") && !strings.HasPrefix(a, "--default-tenant") && !strings.HasPrefix(a, "--space-domain")
		})
		if !slices.Equal(got, c.args) {
			t.Errorf("with %v, Berth gets %v; want %v", c.values, got, c.args)
		}
		mounted := slices.ContainsFunc(pod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == "/etc/berth-clients" && m.ReadOnly })
		named := slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == "clients" && v.Secret.SecretName == "users" })
		if want := slices.Contains(c.values, "clients.secretName=users"); mounted != want || named != want {
			t.Errorf("with %v, the Secret is mounted: %t, and a volume: %t", c.values, mounted, named)
		}
	}
}

// X7: the chart passes on what is recorded of tenants' requests, and where.
func TestTheAuditIsThatOfTheValues(t *testing.T) {
	objects := renderAny(t, "audit.logDir=-", "audit.policy.kind=Policy", "audit.policy.apiVersion=audit.k8s.io/v1", "audit.webhook.secretName=collector")
	text, err := yaml.Marshal(ofKind(t, objects, "StatefulSet").Object)
	if err != nil {
		t.Fatal(err)
	}
	var set appsv1.StatefulSet
	if err := yaml.UnmarshalStrict(text, &set); err != nil {
		t.Fatal(err)
	}
	pod := set.Spec.Template.Spec
	for _, arg := range []string{"--audit-log-dir=-", "--audit-policy-file=/etc/berth/audit-policy.yaml", "--audit-webhook-config-file=/etc/berth-audit/kubeconfig"} {
		if !slices.Contains(pod.Containers[0].Args, arg) {
			t.Errorf("Berth gets %v, without %s", pod.Containers[0].Args, arg)
		}
	}
	if !slices.ContainsFunc(pod.Volumes, func(v corev1.Volume) bool { return v.Name == "audit" && v.Secret.SecretName == "collector" }) ||
		!slices.ContainsFunc(pod.Containers[0].VolumeMounts, func(m corev1.VolumeMount) bool { return m.MountPath == "/etc/berth-audit" && m.ReadOnly }) {
		t.Errorf("the Secret is not mounted: %v", pod.Volumes)
	}
	if policy, _, _ := unstructured.NestedString(ofKind(t, objects, "ConfigMap").Object, "data", "audit-policy.yaml"); !strings.Contains(policy, "audit.k8s.io/v1") {
		t.Errorf("the policy is %q", policy)
	}
}

// X1: an Ingress and a TLSRoute lead the host that tenants use to Berth's TLS port.
func TestTLSPassesThroughToBerth(t *testing.T) {
	objects := renderAny(t, exposed...)
	text, err := yaml.Marshal(ofKind(t, objects, "Ingress").Object)
	if err != nil {
		t.Fatal(err)
	}
	var ingress networkingv1.Ingress
	if err := yaml.UnmarshalStrict(text, &ingress); err != nil {
		t.Fatal(err)
	}
	rule := ingress.Spec.Rules[0]
	if backend := rule.HTTP.Paths[0].Backend.Service; rule.Host != "berth.example.com" || backend.Name != "berth" || backend.Port.Name != "https" || *ingress.Spec.IngressClassName != "nginx" ||
		ingress.Spec.TLS[0].SecretName != "" || len(ingress.Annotations) != 1 {
		t.Errorf("the Ingress is %+v", ingress)
	}
	route := ofKind(t, objects, "TLSRoute")
	hosts, _, _ := unstructured.NestedStringSlice(route.Object, "spec", "hostnames")
	parents, _, _ := unstructured.NestedSlice(route.Object, "spec", "parentRefs")
	if !slices.Equal(hosts, []string{"berth.example.com"}) || len(parents) != 1 || route.GetAPIVersion() != "gateway.networking.k8s.io/v1alpha3" {
		t.Errorf("the TLSRoute is %v", route.Object)
	}
	for values, says := range map[string]string{
		"ingress.enabled=true": "advertise", "advertise=https://a.example,tlsRoute.enabled=true": "tlsRoute.parentRefs", "tls.certManager.enabled=true": "issuerRef.name",
	} {
		if _, stderr, err := helm(t, "template", "berth", "berth", "--set", values); err == nil || !strings.Contains(stderr, says) {
			t.Errorf("%s says %q, want it to name %s", values, stderr, says)
		}
	}
}

// metricName is the name of a metric in an expression.
var metricName = regexp.MustCompile(`\b(berth|controller_runtime|workqueue|process|leader_election|rest_client|go)_[a-z0-9_]+`)

// metricsOfTheCode are the metrics of Berth, which a test of metrics holds its page to, and those of the operator.
func metricsOfTheCode(t *testing.T) map[string]bool {
	t.Helper()
	page, err := os.ReadFile("../docs/reference/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	known := map[string]bool{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(berth_[a-z_]+)` \\|").FindAllStringSubmatch(string(page), -1) {
		known[row[1]] = true
	}
	descriptions := make(chan *prometheus.Desc, 1000)
	metrics.Registry.(prometheus.Collector).Describe(descriptions)
	close(descriptions)
	for d := range descriptions {
		known[regexp.MustCompile(`fqName: "([^"]+)"`).FindStringSubmatch(d.String())[1]] = true
	}
	for _, name := range []string{"process_resident_memory_bytes", "process_cpu_seconds_total"} { // of the system that the test runs on
		known[name] = true
	}
	return known
}

// checkExpression checks that an expression is about metrics that there are.
func checkExpression(t *testing.T, known map[string]bool, where, expression string) {
	t.Helper()
	names := metricName.FindAllString(expression, -1)
	if len(names) == 0 {
		t.Errorf("%s: no metric is in %s", where, expression)
	}
	for _, name := range names {
		base := name
		for _, suffix := range []string{"_bucket", "_sum", "_count"} {
			base = strings.TrimSuffix(base, suffix)
		}
		if !known[name] && !known[base] {
			t.Errorf("%s: there is no metric %s", where, name)
		}
	}
}

// X7: each alert is about metrics that there are, and a section of the documentation says what to do.
func TestAlertsAreAboutMetricsAndHaveARunbook(t *testing.T) {
	known := metricsOfTheCode(t)
	page, err := os.ReadFile("../docs/guides/runbooks.md")
	if err != nil {
		t.Fatal(err)
	}
	rule := ofKind(t, renderAny(t, append(slices.Clone(exposed), "monitoring.rules.disabled=null")...), "PrometheusRule")
	var spec struct {
		Groups []struct {
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	text, err := json.Marshal(rule.Object["spec"])
	if err == nil {
		err = json.Unmarshal(text, &spec)
	}
	if err != nil {
		t.Fatal(err)
	}
	alerts := 0
	for _, group := range spec.Groups {
		for _, r := range group.Rules {
			alerts++
			checkExpression(t, known, r.Alert, r.Expr)
			if r.Annotations["runbook_url"] != "https://github.com/berth-dev/berth/blob/main/docs/guides/runbooks.md#"+strings.ToLower(r.Alert) {
				t.Errorf("%s: the runbook is at %s", r.Alert, r.Annotations["runbook_url"])
			}
			if !strings.Contains(string(page), "\n## "+r.Alert+"\n") {
				t.Errorf("%s: the runbook has no section about it", r.Alert)
			}
			if r.Annotations["summary"] == "" || r.Annotations["description"] == "" || r.For == "" || !slices.Contains([]string{"info", "warning", "critical"}, r.Labels["severity"]) {
				t.Errorf("%s is incomplete: %+v", r.Alert, r)
			}
		}
	}
	if sections := strings.Count(string(page), "\n## Berth"); alerts < 10 || sections != alerts {
		t.Errorf("there are %d alerts and %d sections", alerts, sections)
	}
	if without := ofKind(t, renderAny(t, exposed...), "PrometheusRule"); strings.Contains(toYAML(t, without), "BerthDown") {
		t.Error("a disabled alert is there")
	}
}

func toYAML(t *testing.T, object *unstructured.Unstructured) string {
	t.Helper()
	text, err := yaml.Marshal(object.Object)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// X7: each panel of a dashboard is about metrics that there are, and Grafana's sidecar finds it.
func TestDashboardsAreAboutMetrics(t *testing.T) {
	known := metricsOfTheCode(t)
	boards := 0
	for _, o := range renderAny(t, exposed...) {
		if o.GetKind() != "ConfigMap" || !strings.Contains(o.GetName(), "-dashboard-") {
			continue
		}
		boards++
		if o.GetLabels()["grafana_dashboard"] != "1" {
			t.Errorf("%s has the labels %v", o.GetName(), o.GetLabels())
		}
		data, _, _ := unstructured.NestedStringMap(o.Object, "data")
		for name, text := range data {
			var board struct {
				UID, Title string
				Panels     []struct {
					ID      int
					Title   string
					Targets []struct{ Expr string }
				}
			}
			if err := json.Unmarshal([]byte(text), &board); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			seen := map[int]bool{}
			for _, panel := range board.Panels {
				if seen[panel.ID] || len(panel.Targets) == 0 {
					t.Errorf("%s: panel %d, %s, is there twice, or shows nothing", name, panel.ID, panel.Title)
				}
				seen[panel.ID] = true
				for _, target := range panel.Targets {
					checkExpression(t, known, name+", "+panel.Title, target.Expr)
				}
			}
			if board.UID == "" || len(board.Panels) < 5 {
				t.Errorf("%s is %+v", name, board)
			}
		}
	}
	if boards != 3 {
		t.Errorf("there are %d dashboards", boards)
	}
}

// X4: Prometheus finds Berth's pod and the operator's.
func TestThePodMonitorSelectsBerthAndTheOperator(t *testing.T) {
	objects := renderAny(t, exposed...)
	monitor := ofKind(t, objects, "PodMonitor")
	if monitor.GetLabels()["release"] != "prometheus" {
		t.Errorf("it has the labels %v", monitor.GetLabels())
	}
	var selector struct {
		Selector struct {
			MatchExpressions []struct {
				Key    string
				Values []string
			}
		}
	}
	text, err := json.Marshal(monitor.Object["spec"])
	if err == nil {
		err = json.Unmarshal(text, &selector)
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, kind := range []string{"StatefulSet", "Deployment"} {
		labels, _, _ := unstructured.NestedStringMap(ofKind(t, objects, kind).Object, "spec", "template", "metadata", "labels")
		for _, e := range selector.Selector.MatchExpressions {
			if !slices.Contains(e.Values, labels[e.Key]) {
				t.Errorf("it does not select the pods of the %s, which have %v", kind, labels)
			}
		}
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

const (
	lunarRole = rolePrefix + "lunar-app"
	onlyRoles = `{workloadIdentity: [{annotation: ` + roleKey + `, values: ["` + rolePrefix + `%s"]}]}`
)

// annotated is a ServiceAccount.
func annotated(name string, annotations ...string) *corev1.ServiceAccount {
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}}
	for i := 0; i < len(annotations); i += 2 {
		account.Annotations[annotations[i]] = annotations[i+1]
	}
	return account
}

// withIdentities starts a Berth whose tenants may have identities.
func withIdentities(t *testing.T, tenants map[string]string, args ...string) (*berth, *cluster) {
	t.Helper()
	b := start(t, append(args, "--operator", configured(t, withAccounts))...)
	host := b.host(t)
	host.apply(t, cloud)
	for name, spec := range tenants {
		host.apply(t, tenantObject(name, spec))
		awaitTenant(t, host, name)
		awaitReady(t, host, name, "True")
	}
	return b, host
}

// notOnHost checks that a pod of the space solar waits, and why.
func notOnHost(t *testing.T, space, host *cluster, name, says string) {
	t.Helper()
	if e := space.awaitEvent(t, "default", "Pod", name, "SpaceForbids"); !strings.Contains(e.Message, says) || !strings.Contains(e.Message, "or ask the admin") {
		t.Errorf("the event of %s says %q, want %q and a remedy", name, e.Message, says)
	}
	if _, err := host.CoreV1().Pods("berth-solar").Get(t.Context(), "solar--default--"+name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("the pod %s is on the host: %v", name, err)
	}
}

// Z2, M4: neither an owner of a tenant nor an admin of its space can write or widen the list of identities, whatever way they take.
func TestHostileOwnersAllowThemselvesNoIdentities(t *testing.T) {
	t.Parallel()
	tokens := filepath.Join(t.TempDir(), "tokens.csv")
	if err := os.WriteFile(tokens, []byte("of-alice,alice,u1,berth.dev,,solar\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b, host := withIdentities(t, map[string]string{"solar": strings.Replace(solarList, "{", "{owners: [{kind: User, name: alice}], ", 1)}, "--token-auth-file", tokens)
	solar := b.space(t, "solar")
	before := host.kubectl(t, "get", "tenant,space", "solar", "-o", "jsonpath={.items[*].spec}")
	wide := []byte(`{"spec": {"workloadIdentity": [{"annotation": "` + roleKey + `", "values": ["` + rolePrefix + `*"]}]}}`)
	write := func(c *cluster, path string) error {
		return c.CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath(path).Body(wide).Do(t.Context()).Error()
	}

	token := atEndpoint(t, solar, withToken(solar.config, "of-alice"))
	eventually(t, func() error { return listPods(t, token, "default") })
	for _, resource := range []string{"tenants", "spaces"} {
		for _, path := range []string{"/spaces/system/apis/berth.dev/v1alpha1/" + resource + "/solar", "/apis/berth.dev/v1alpha1/tenants/system/" + resource + "/solar"} {
			if err := refusedAtGateway(write(token, path)); err != nil {
				t.Errorf("an owner writes %s: %v", path, err)
			}
		}
		if err := write(token, "/apis/berth.dev/v1alpha1/"+resource+"/solar"); !apierrors.IsNotFound(err) {
			t.Errorf("an owner writes %s in the space: %v", resource, err)
		}
	}
	issued := b.issued(t, "solar", "--owner", "alice")
	config := rest.CopyConfig(issued.config)
	config.Host, config.CAData, config.CAFile = host.config.Host, host.config.CAData, host.config.CAFile
	direct := &cluster{Interface: must(kubernetes.NewForConfig(config))(t), config: config}
	if err := write(direct, "/apis/berth.dev/v1alpha1/tenants/solar"); !apierrors.IsUnauthorized(err) {
		t.Errorf("an owner writes to the host's API: %v", err)
	}

	// Objects of the same names in the space mean nothing, if they are possible.
	for _, kind := range []string{"Tenant", "Space"} {
		plural := strings.ToLower(kind) + "s"
		_, _ = solar.tryKubectl(t, fmt.Sprintf(`{apiVersion: apiextensions.k8s.io/v1, kind: CustomResourceDefinition, metadata: {name: %s.berth.dev},
  spec: {group: berth.dev, scope: Cluster, names: {kind: %s, plural: %[1]s}, versions: [{name: v1alpha1, served: true, storage: true,
  schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}}]}}`, plural, kind), "apply", "-f", "-")
		_, _ = solar.tryKubectl(t, fmt.Sprintf("{apiVersion: berth.dev/v1alpha1, kind: %s, metadata: {name: solar}, spec: {workloadIdentity: [{annotation: %s, values: [%q]}]}}",
			kind, roleKey, rolePrefix+"*"), "apply", "-f", "-")
	}
	solar.kubectl(t, "annotate", "namespace", "default", "berth.dev/workload-identity="+roleKey+"="+rolePrefix+"*")
	byHand(t, solar.CoreV1().ServiceAccounts("default").Create, annotated("thief", roleKey, lunarRole))
	byHand(t, solar.CoreV1().Pods("default").Create, newPod("stolen", runningAs("thief")))
	notOnHost(t, solar, host, "stolen", "allows "+rolePrefix+"solar-*;")
	awaitAnnotation(t, host, "thief", roleKey, "")
	if after := host.kubectl(t, "get", "tenant,space", "solar", "-o", "jsonpath={.items[*].spec}"); after != before || !strings.Contains(after, "solar-*") {
		t.Errorf("the specs are\n%s\nand were\n%s", after, before)
	}
	if list := must(host.CoreV1().Namespaces().Get(t.Context(), "berth-solar", metav1.GetOptions{}))(t).Annotations[identityMarker]; strings.Contains(list, rolePrefix+"*") {
		t.Errorf("the host's policies read %s", list)
	}
}

// M4: once the admin takes an identity away, new pods wait, and the account of the space can't write it; pods that run keep it, as the guide
// says. Once it is allowed again, the pods run. So it is in a space with a process of its own, and for a list of the Space.
func TestHostileUsesOfIdentitiesThatWereTakenAway(t *testing.T) {
	t.Parallel()
	b, host := withIdentities(t, map[string]string{"solar": fmt.Sprintf(onlyRoles, "solar-*")})
	solar := b.space(t, "solar")
	allow := func(object, value string) {
		t.Helper()
		host.kubectl(t, "patch", object, "solar", "--type", "merge", "--patch", "spec: "+fmt.Sprintf(onlyRoles, value))
	}
	for _, name := range []string{"app", "db"} {
		byHand(t, solar.CoreV1().ServiceAccounts("default").Create, annotated(name, roleKey, rolePrefix+"solar-"+name))
		awaitAnnotation(t, host, name, roleKey, rolePrefix+"solar-"+name)
	}
	solar.run(t, "default", newPod("web", runningAs("app")))
	if got := variable(hostPodOf(t, host, "solar", "web"), "AWS_ROLE_ARN"); got != rolePrefix+"solar-app" {
		t.Fatalf("a pod has the role %q", got)
	}

	takenAway := func(t *testing.T, suffix string) {
		awaitAnnotation(t, host, "app", roleKey, "")
		byHand(t, solar.CoreV1().Pods("default").Create, newPod("app-"+suffix, runningAs("app")))
		notOnHost(t, solar, host, "app-"+suffix, "allows "+rolePrefix+"solar-db;")
		awaitAnnotation(t, host, "db", roleKey, rolePrefix+"solar-db")
		solar.run(t, "default", newPod("db-"+suffix, runningAs("db")))
		if got := variable(hostPodOf(t, host, "solar", "db-"+suffix), "AWS_ROLE_ARN"); got != rolePrefix+"solar-db" {
			t.Errorf("a pod whose identity is still allowed has the role %q", got)
		}
		account := "system:serviceaccount:berth-solar:berth-syncer"
		theirs := host.as(t, account, "system:serviceaccounts", "system:serviceaccounts:berth-solar", "system:authenticated").CoreV1().ServiceAccounts("berth-solar")
		have := must(theirs.Get(t.Context(), "solar--default--app", metav1.GetOptions{}))(t)
		have.Annotations[roleKey] = rolePrefix + "solar-app"
		_, err := theirs.Update(t.Context(), have, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		refused(t, "the role that was taken away", err, "only metadata")

		solar.kubectl(t, "label", "--overwrite", "pod", "web", "seen="+suffix)
		await(t, host.CoreV1().Pods("berth-solar").Get, "solar--default--web", func(p *corev1.Pod) error {
			if p.Labels["seen"] != suffix || variable(p, "AWS_ROLE_ARN") != rolePrefix+"solar-app" || !isRunning(p) {
				return fmt.Errorf("the pod that ran before has the labels %v and the role %q", p.Labels, variable(p, "AWS_ROLE_ARN"))
			}
			return nil
		})
	}
	givenBack := func(t *testing.T, suffix string) {
		solar.awaitRunning(t, "default", "app-"+suffix)
		if got := variable(hostPodOf(t, host, "solar", "app-"+suffix), "AWS_ROLE_ARN"); got != rolePrefix+"solar-app" {
			t.Errorf("once it is allowed again, the pod has the role %q", got)
		}
	}
	t.Run("by the Tenant", func(t *testing.T) {
		allow("tenant", "solar-db")
		takenAway(t, "tenant")
		allow("tenant", "solar-*")
		awaitAnnotation(t, host, "app", roleKey, rolePrefix+"solar-app")
		givenBack(t, "tenant")
	})
	t.Run("by the Space", func(t *testing.T) {
		allow("space", "solar-db")
		takenAway(t, "space")
		// The Tenant's values are not merged into those of the Space when the operator applies it again.
		host.kubectl(t, "patch", "tenant", "solar", "--type", "merge", "--patch", "spec: {hostNamespaces: {labels: {example.com/again: '1'}}}")
		await(t, host.CoreV1().Namespaces().Get, "berth-solar", func(n *corev1.Namespace) error {
			if list := n.Annotations[identityMarker]; n.Labels["example.com/again"] != "1" || list != roleKey+"="+rolePrefix+"solar-db" {
				return fmt.Errorf("the namespace has the labels %v, and the host's policies read %s", n.Labels, list)
			}
			return nil
		})
		allow("space", "solar-*")
		givenBack(t, "space")
	})
	t.Run("in a process of its own", func(t *testing.T) {
		patchSpace(t, host, "solar", "spec: {isolation: Dedicated}")
		eventually(t, func() error { return listPods(t, solar, "default") })
		allow("space", "solar-db")
		takenAway(t, "dedicated")
		allow("space", "solar-*")
		givenBack(t, "dedicated")
	})
}

// S1, M4: neither what a tenant writes on its pods and namespaces, nor names that look like those of the host, nor values that are long bring
// an identity to the host.
func TestHostileObjectsSmuggleNoIdentity(t *testing.T) {
	t.Parallel()
	b, host := withIdentities(t, map[string]string{"solar": solarList})
	solar := b.space(t, "solar")
	claims := map[string]string{
		roleKey: rolePrefix + "solar-app", clientKey: clientID, "iam.gke.io/gcp-service-account": "solar@p.iam.gserviceaccount.com", "eks.amazonaws.com/audience": "sts.amazonaws.com",
		"azure.workload.identity/inject-proxy-sidecar": "true", identityMarker: roleKey, "vault.hashicorp.com/agent-inject": "true",
	}
	labels := map[string]string{useLabel: "true", "azure.workload.identity/inject-proxy-sidecar": "true", "eks.amazonaws.com/pod": "x", "label.berth.dev/azure.workload.identity": "x", "app": "web"}
	for _, namespace := range []string{"shop", "shop--x"} {
		solar.namespace(t, namespace)
		solar.kubectl(t, "annotate", "namespace", namespace, roleKey+"="+rolePrefix+"solar-app", "berth.dev/workload-identity="+roleKey+"="+rolePrefix+"*")
	}
	decoy := annotated("decoy")
	decoy.Labels, decoy.AutomountServiceAccountToken, decoy.Secrets = labels, ptr.To(true), []corev1.ObjectReference{{Name: "token"}}
	for key, value := range claims {
		if key != roleKey && key != clientKey { // these may have it
			decoy.Annotations[key] = value
		}
	}
	accounts := solar.CoreV1().ServiceAccounts
	byHand(t, accounts("default").Create, decoy)
	byHand(t, accounts("default").Create, annotated("solar--shop--x--y"))
	byHand(t, accounts("shop--x").Create, annotated("y"))
	byHand(t, accounts("shop").Create, annotated("x--y", roleKey, rolePrefix+"solar-app", clientKey, clientID))
	for namespace, names := range map[string][]string{"default": {"decoy", "solar--shop--x--y", "default"}, "shop--x": {"y"}, "shop": {"x--y"}} {
		for _, account := range names {
			solar.run(t, namespace, newPod("as-"+account, func(p *corev1.Pod) {
				p.Annotations, p.Labels, p.Spec.ServiceAccountName, p.Spec.AutomountServiceAccountToken = claims, labels, account, ptr.To(true)
				p.Spec.Volumes = []corev1.Volume{{Name: "aws-iam-token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{
					ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: "sts.amazonaws.com", Path: "token"},
				}}}}}}
			}))
		}
	}
	solar.kubectl(t, "label", "--overwrite", "pod", "as-decoy", useLabel+"=true", "late=yes")
	await(t, host.CoreV1().Pods("berth-solar").Get, "solar--default--as-decoy", func(p *corev1.Pod) error {
		if p.Labels["late"] != "yes" {
			return fmt.Errorf("the labels are %v", p.Labels)
		}
		return nil
	})

	owned := func(key string) bool {
		domain, _, _ := strings.Cut(key, "/")
		return domain == "berth.dev" || strings.HasSuffix(domain, ".berth.dev") || key == "app.kubernetes.io/managed-by"
	}
	identified := 0
	for _, a := range must(host.CoreV1().ServiceAccounts("berth-solar").List(t.Context(), metav1.ListOptions{LabelSelector: "berth.dev/namespace"}))(t).Items {
		id := identityOf(&a)
		theOne := id.namespace == "shop" && id.name == "x--y"
		if len(a.Secrets) > 0 || ptr.Deref(a.AutomountServiceAccountToken, true) {
			t.Errorf("the host account %s has secrets or a token", a.Name)
		}
		for key, value := range a.Annotations {
			allowed := theOne && value == claims[key] && (key == roleKey || key == clientKey)
			if !owned(key) && !allowed {
				t.Errorf("the host account %s has the annotation %s=%s", a.Name, key, value)
			}
		}
		for key := range a.Labels {
			if !owned(key) {
				t.Errorf("the host account %s has the label %s", a.Name, key)
			}
		}
		if a.Annotations[roleKey] != "" {
			identified++
		} else if a.Annotations[identityMarker] != "" {
			t.Errorf("the host account %s has %v", a.Name, a.Annotations)
		}
	}
	if identified != 1 {
		t.Errorf("%d host accounts have the role, want 1", identified)
	}
	for _, p := range must(host.CoreV1().Pods("berth-solar").List(t.Context(), metav1.ListOptions{}))(t).Items {
		theOne := identityOf(&p).name == "as-x--y"
		for key, value := range p.Annotations {
			if !owned(key) && key != "kubernetes.io/limit-ranger" {
				t.Errorf("the host pod %s has the annotation %s=%s", p.Name, key, value)
			}
		}
		for key, value := range p.Labels {
			plain := key == "app" || key == "late" || strings.HasPrefix(key, "topology.kubernetes.io/") // the host sets these by the node
			if allowed := theOne && key == useLabel && value == "true"; !owned(key) && !plain && !allowed {
				t.Errorf("the host pod %s has the label %s=%s", p.Name, key, value)
			}
		}
		if (p.Labels[useLabel] == "true") != theOne {
			t.Errorf("the host pod %s has the labels %v", p.Name, p.Labels)
		}
		for _, v := range p.Spec.Volumes {
			for _, source := range ptr.Deref(v.Projected, corev1.ProjectedVolumeSource{}).Sources {
				if source.ServiceAccountToken != nil && !theOne {
					t.Errorf("the host pod %s has a token of the host for %s", p.Name, source.ServiceAccountToken.Audience)
				}
			}
		}
	}

	t.Run("a value that is long, or leads upward", func(t *testing.T) {
		for name, value := range map[string]string{"long": rolePrefix + "solar-" + strings.Repeat("x", 200<<10), "upward": rolePrefix + "solar-x/../lunar-app", "two-lines": rolePrefix + "solar-app\n" + lunarRole} {
			byHand(t, accounts("default").Create, annotated(name, roleKey, value))
			byHand(t, solar.CoreV1().Pods("default").Create, newPod("as-"+name, runningAs(name)))
			notOnHost(t, solar, host, "as-"+name, "allows "+rolePrefix+"solar-*;")
			awaitAnnotation(t, host, name, roleKey, "")
		}
	})
}

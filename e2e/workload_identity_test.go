// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/coreos/go-oidc"
	jose "gopkg.in/go-jose/go-jose.v2"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

const (
	roleKey    = "eks.amazonaws.com/role-arn"
	clientKey  = "azure.workload.identity/client-id"
	useLabel   = "azure.workload.identity/use"
	rolePrefix = "arn:aws:iam::111122223333:role/"
	// identityMarker on a host account lists the annotations that Berth set.
	identityMarker = "berth.dev/workload-identity"

	clientID  = "11111111-2222-3333-4444-555555555555"
	solarList = `{workloadIdentity: [{annotation: ` + roleKey + `, values: ["` + rolePrefix + `solar-*"]},
  {annotation: ` + clientKey + `, values: [` + clientID + `], podLabels: {` + useLabel + `: "true"}}]}`
	withAccounts = `spaceDefaults: {sync: [{resource: serviceaccounts, value: "on"}]}`
)

// cloud does what the webhooks of AWS and Azure do: by the annotation of a pod's ServiceAccount on the host, it adds a variable and a token
// with an audience. It is a policy, because the embedded host calls no webhooks.
const cloud = `
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicy
metadata: {name: cloud}
spec:
  paramKind: {apiVersion: v1, kind: ServiceAccount}
  failurePolicy: Fail
  reinvocationPolicy: Never
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: [CREATE], resources: [pods]}]
  mutations:
  - patchType: JSONPatch
    jsonPatch:
      expression: |
        object.spec.?serviceAccountName.orValue("") != params.metadata.name || params.metadata.?annotations[?"eks.amazonaws.com/role-arn"].orValue("") == "" && !(object.metadata.?labels[?"azure.workload.identity/use"].orValue("") == "true") ? [] : [
          JSONPatch{op: "add", path: "/spec/volumes/-", value: Object.spec.volumes{name: "cloud-token", projected: Object.spec.volumes.projected{
            sources: [Object.spec.volumes.projected.sources{serviceAccountToken: Object.spec.volumes.projected.sources.serviceAccountToken{
              audience: object.metadata.?labels[?"azure.workload.identity/use"].orValue("") == "true" ? "api://AzureADTokenExchange" : "sts.amazonaws.com", path: "token", expirationSeconds: 3600}}]}}},
          JSONPatch{op: "add", path: "/spec/containers/0/volumeMounts/-", value: Object.spec.containers.volumeMounts{name: "cloud-token", mountPath: "/var/run/cloud", readOnly: true}},
          JSONPatch{op: "add", path: "/spec/containers/0/env/-", value: object.metadata.?labels[?"azure.workload.identity/use"].orValue("") == "true" ?
            Object.spec.containers.env{name: "AZURE_CLIENT_ID", value: params.metadata.?annotations[?"azure.workload.identity/client-id"].orValue("")} :
            Object.spec.containers.env{name: "AWS_ROLE_ARN", value: params.metadata.?annotations[?"eks.amazonaws.com/role-arn"].orValue("")}}
        ]
---
apiVersion: admissionregistration.k8s.io/v1
kind: MutatingAdmissionPolicyBinding
metadata: {name: cloud}
spec:
  policyName: cloud
  paramRef: {selector: {}, parameterNotFoundAction: Allow}
  matchResources:
    namespaceSelector: {matchExpressions: [{key: berth.dev/space, operator: Exists}]}
`

// variable is the value of a variable of a pod's first container.
func variable(pod *corev1.Pod, name string) string {
	for _, v := range pod.Spec.Containers[0].Env {
		if v.Name == name {
			return v.Value
		}
	}
	return ""
}

func runningAs(account string, labels ...string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.ServiceAccountName, p.Labels = account, map[string]string{"app": p.Name}
		for i := 0; i < len(labels); i += 2 {
			p.Labels[labels[i]] = labels[i+1]
		}
	}
}

// awaitAnnotation waits until the host account of a ServiceAccount of the space solar has an annotation with a value, and none if it is empty.
func awaitAnnotation(t *testing.T, host *cluster, account, key, want string) {
	t.Helper()
	await(t, host.CoreV1().ServiceAccounts("berth-solar").Get, "solar--default--"+account, func(a *corev1.ServiceAccount) error {
		if got, there := a.Annotations[key]; got != want || there != (want != "") {
			return fmt.Errorf("the host account of %s has %v, want %s=%q", account, a.Annotations, key, want)
		}
		return nil
	})
}

// S1, M4: a tenant's pods have the identities of the cloud that the admin allows, and no other. They keep what the cloud adds to them.
func TestPodsHaveTheCloudIdentityThatTheAdminAllows(t *testing.T) {
	t.Parallel()
	b := start(t, "--operator", configured(t, withAccounts))
	host := b.host(t)
	host.apply(t, cloud)
	for name, spec := range map[string]string{"solar": solarList, "lunar": "{}"} {
		host.apply(t, tenantObject(name, spec))
		awaitTenant(t, host, name)
		awaitReady(t, host, name, "True")
	}
	solar := b.space(t, "solar")
	annotate := func(account, annotation string) {
		t.Helper()
		solar.kubectl(t, "annotate", "--overwrite", "serviceaccount", account, annotation)
	}
	for _, name := range []string{"app", "thief", "mixed"} {
		solar.kubectl(t, "create", "serviceaccount", name)
	}
	annotate("app", roleKey+"="+rolePrefix+"solar-app")
	annotate("app", "example.com/other=x")

	t.Run("a pod gets the identity of its account, and keeps it", func(t *testing.T) {
		written := solar.run(t, "default", newPod("web", runningAs("app")))
		if got := variable(hostPodOf(t, host, "solar", "web"), "AWS_ROLE_ARN"); got != rolePrefix+"solar-app" {
			t.Errorf("the pod has the role %q", got)
		}
		if variable(written, "AWS_ROLE_ARN") != "" || slices.ContainsFunc(written.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "cloud-token" }) {
			t.Errorf("the tenant's pod has what the cloud added: %v", written.Spec)
		}
		solar.kubectl(t, "label", "pod", "web", "late=yes")
		solar.kubectl(t, "set", "image", "pod/web", "c=nginx:2")
		await(t, host.CoreV1().Pods("berth-solar").Get, "solar--default--web", func(p *corev1.Pod) error {
			if p.Labels["late"] != "yes" || p.Spec.Containers[0].Image != "nginx:2" {
				return fmt.Errorf("the host pod has the labels %v and the image %s", p.Labels, p.Spec.Containers[0].Image)
			}
			return nil
		})
		after := hostPodOf(t, host, "solar", "web")
		if variable(after, "AWS_ROLE_ARN") != rolePrefix+"solar-app" || !slices.ContainsFunc(after.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "cloud-token" }) {
			t.Errorf("after an update, the host pod is %v", after.Spec)
		}
		if events := solar.kubectl(t, "events", "--for", "pod/web"); strings.Contains(events, "HostDropped") || strings.Contains(events, "Forbids") {
			t.Errorf("the tenant is told of the cloud's changes:\n%s", events)
		}
		account := must(host.CoreV1().ServiceAccounts("berth-solar").Get(t.Context(), "solar--default--app", metav1.GetOptions{}))(t)
		if _, other := account.Annotations["example.com/other"]; other || ptr.Deref(account.AutomountServiceAccountToken, true) {
			t.Errorf("the host account is %v", account)
		}
	})

	t.Run("the cloud verifies the token of the host account", func(t *testing.T) {
		review := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{Audiences: []string{"sts.amazonaws.com"}}}
		token := must(host.CoreV1().ServiceAccounts("berth-solar").CreateToken(t.Context(), "solar--default--app", review, metav1.CreateOptions{}))(t).Status.Token
		verified := verify(t, host, issuerOf(t, host), "sts.amazonaws.com", token)
		if verified.Subject != "system:serviceaccount:berth-solar:solar--default--app" {
			t.Errorf("to the cloud, the pod is %s", verified.Subject)
		}
		if _, err := must(kubernetes.NewForConfig(withToken(host.config, token)))(t).CoreV1().Pods("berth-solar").List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
			t.Errorf("the token of the cloud is good for the host's API: %v", err)
		}
	})

	t.Run("an identity that isn't allowed keeps pods from running", func(t *testing.T) {
		annotate("thief", roleKey+"="+rolePrefix+"lunar-app")
		byHand(t, solar.CoreV1().Pods("default").Create, newPod("stolen", runningAs("thief")))
		for kind, name := range map[string]string{"ServiceAccount": "thief", "Pod": "stolen"} {
			e := solar.awaitEvent(t, "default", kind, name, "SpaceForbids")
			for _, part := range []string{"metadata.annotations[" + roleKey + "]", rolePrefix + "lunar-app", "allows " + rolePrefix + "solar-*", "use one of these, remove the annotation"} {
				if !strings.Contains(e.Message, part) {
					t.Errorf("the event of the %s says %q, and lacks %q", kind, e.Message, part)
				}
			}
		}
		awaitAnnotation(t, host, "thief", roleKey, "")
		if _, err := host.CoreV1().Pods("berth-solar").Get(t.Context(), "solar--default--stolen", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("a pod with the identity of another tenant is on the host: %v", err)
		}
		annotate("thief", roleKey+"="+rolePrefix+"solar-thief")
		solar.awaitRunning(t, "default", "stolen")
		if got := variable(hostPodOf(t, host, "solar", "stolen"), "AWS_ROLE_ARN"); got != rolePrefix+"solar-thief" {
			t.Errorf("once it is allowed, the pod has the role %q", got)
		}
	})

	t.Run("labels of pods that the cloud's webhook needs", func(t *testing.T) {
		annotate("mixed", clientKey+"="+clientID)
		for name, want := range map[string]string{"true": clientID, "false": ""} {
			solar.run(t, "default", newPod("azure-"+name, runningAs("mixed", useLabel, name)))
			pod := hostPodOf(t, host, "solar", "azure-"+name)
			if got := variable(pod, "AZURE_CLIENT_ID"); got != want || (pod.Labels[useLabel] == "true") != (want != "") {
				t.Errorf("a pod with the label %s has the client %q and the labels %v", name, got, pod.Labels)
			}
		}
		solar.run(t, "default", newPod("without", runningAs("default", useLabel, "true")))
		if pod := hostPodOf(t, host, "solar", "without"); pod.Labels[useLabel] != "" || variable(pod, "AZURE_CLIENT_ID") != "" {
			t.Errorf("a pod whose account has no annotation has the labels %v", pod.Labels)
		}
		solar.kubectl(t, "label", "pod", "azure-true", "late=yes")
		await(t, host.CoreV1().Pods("berth-solar").Get, "solar--default--azure-true", func(p *corev1.Pod) error {
			if p.Labels["late"] != "yes" || p.Labels[useLabel] != "true" {
				return fmt.Errorf("the labels are %v", p.Labels)
			}
			return nil
		})
	})

	t.Run("the host account follows", func(t *testing.T) {
		annotate("app", roleKey+"="+rolePrefix+"solar-db")
		awaitAnnotation(t, host, "app", roleKey, rolePrefix+"solar-db")
		solar.run(t, "default", newPod("db", runningAs("app")))
		if got := variable(hostPodOf(t, host, "solar", "db"), "AWS_ROLE_ARN"); got != rolePrefix+"solar-db" {
			t.Errorf("after a change, a pod has the role %q", got)
		}
		solar.kubectl(t, "delete", "serviceaccount", "app")
		solar.kubectl(t, "create", "serviceaccount", "app")
		awaitAnnotation(t, host, "app", roleKey, "")
		solar.run(t, "default", newPod("again", runningAs("app")))
		if got := variable(hostPodOf(t, host, "solar", "again"), "AWS_ROLE_ARN"); got != "" {
			t.Errorf("an account that is created again has the role %q", got)
		}
	})

	t.Run("the account of a space writes no other", func(t *testing.T) {
		account := "system:serviceaccount:berth-solar:berth-syncer"
		theirs := host.as(t, account, "system:serviceaccounts", "system:serviceaccounts:berth-solar", "system:authenticated").CoreV1().ServiceAccounts("berth-solar")
		forged := func(name, value string) *corev1.ServiceAccount {
			return &corev1.ServiceAccount{AutomountServiceAccountToken: ptr.To(false), ObjectMeta: metav1.ObjectMeta{
				Name: "solar--default--" + name, Labels: map[string]string{labelSpace: "solar"}, Annotations: map[string]string{roleKey: value, identityMarker: roleKey},
			}}
		}
		dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
		if _, err := theirs.Create(t.Context(), forged("forged", rolePrefix+"solar-forged"), dry); err != nil {
			t.Errorf("a role of its own: %v", err)
		}
		_, err := theirs.Create(t.Context(), forged("forged", rolePrefix+"lunar-app"), dry)
		refused(t, "a role of another tenant", err, "only metadata")
		unmarked := forged("forged", rolePrefix+"solar-forged")
		delete(unmarked.Annotations, identityMarker)
		_, err = theirs.Create(t.Context(), unmarked, dry)
		refused(t, "a role that Berth would take for the admin's", err, "only metadata")
		have := must(theirs.Get(t.Context(), "solar--default--thief", metav1.GetOptions{}))(t)
		have.Annotations[roleKey], have.Annotations[identityMarker] = rolePrefix+"lunar-app", roleKey
		_, err = theirs.Update(t.Context(), have, metav1.UpdateOptions{DryRun: []string{metav1.DryRunAll}})
		refused(t, "a change to a role of another tenant", err, "only metadata")
	})

	t.Run("without a list, nothing is copied", func(t *testing.T) {
		lunar := b.space(t, "lunar")
		lunar.kubectl(t, "create", "serviceaccount", "app")
		lunar.kubectl(t, "annotate", "serviceaccount", "app", roleKey+"="+rolePrefix+"solar-app", clientKey+"="+clientID)
		lunar.run(t, "default", newPod("web", runningAs("app", useLabel, "true")))
		if pod := hostPodOf(t, host, "lunar", "web"); variable(pod, "AWS_ROLE_ARN")+variable(pod, "AZURE_CLIENT_ID")+pod.Labels[useLabel] != "" {
			t.Errorf("a pod of a tenant without a list is %v", pod)
		}
	})

	t.Run("what the admin no longer allows is removed, also while the space sleeps", func(t *testing.T) {
		host.kubectl(t, "annotate", "serviceaccount", "-n", "berth-solar", "solar--default--thief", "iam.gke.io/gcp-service-account=by-hand")
		awaitAnnotation(t, host, "thief", roleKey, rolePrefix+"solar-thief")
		b.command(t, "sleep", "solar")
		host.kubectl(t, "patch", "tenant", "solar", "--type=json", "--patch", `[{"op": "remove", "path": "/spec/workloadIdentity"}]`)
		awaitAnnotation(t, host, "thief", roleKey, "")
		awaitAnnotation(t, host, "thief", "iam.gke.io/gcp-service-account", "by-hand")
		awaitAnnotation(t, host, "mixed", clientKey, "")
		if web := hostPodOf(t, host, "solar", "web"); variable(web, "AWS_ROLE_ARN") != rolePrefix+"solar-app" {
			t.Errorf("a pod that runs has changed: %v", web.Spec)
		}
	})
}

// M4: a list that can't work is refused when Berth starts, with the field and the remedy.
func TestWorkloadIdentitiesOfAConfigurationAreChecked(t *testing.T) {
	t.Parallel()
	for fields, want := range map[string]string{
		"spaceDefaults: {workloadIdentity: [{annotation: " + roleKey + `, values: ["` + rolePrefix + `solar-*"]}]}`: `set the sync option serviceaccounts to "on"`,
		"spaceDefaults: {workloadIdentity: [{annotation: kubernetes.io/x, values: [xx]}]}":                          "spaceDefaults.workloadIdentity[0].annotation: Invalid value: \"kubernetes.io/x\"",
	} {
		_, out, code := runBerth(t, "up", "--data-dir", t.TempDir(), configured(t, fields))
		if code == 0 || !strings.Contains(out, want) {
			t.Errorf("%s: ended with %d, and %q does not say %q", fields, code, out, want)
		}
	}
}

// publicKeys are those that a program has a copy of.
type publicKeys struct{ jose.JSONWebKeySet }

// VerifySignature implements [oidc.KeySet].
func (k publicKeys) VerifySignature(_ context.Context, token string) ([]byte, error) {
	signed, err := jose.ParseSigned(token)
	if err != nil {
		return nil, err
	}
	for _, key := range k.Key(signed.Signatures[0].Header.KeyID) {
		if payload, err := signed.Verify(key); err == nil {
			return payload, nil
		}
	}
	return nil, errors.New("no public key has signed the token")
}

// keysOf copies the public keys of a cluster, as docs/guides/workload-identity.md says.
func keysOf(t *testing.T, of *cluster) (keys publicKeys) {
	t.Helper()
	if err := json.Unmarshal([]byte(of.kubectl(t, "get", "--raw", "/openid/v1/jwks")), &keys.JSONWebKeySet); err != nil || len(keys.Keys) == 0 {
		t.Fatalf("the public keys are %v, %v", keys, err)
	}
	return keys
}

func issuerOf(t *testing.T, of *cluster) string {
	t.Helper()
	document := struct{ Issuer string }{}
	if err := json.Unmarshal([]byte(of.kubectl(t, "get", "--raw", "/.well-known/openid-configuration")), &document); err != nil {
		t.Fatal(err)
	}
	return document.Issuer
}

func verify(t *testing.T, of *cluster, issuer, audience, token string) *oidc.IDToken {
	t.Helper()
	verifier := oidc.NewVerifier(issuer, keysOf(t, of), &oidc.Config{ClientID: audience, SupportedSigningAlgs: []string{oidc.ES256, oidc.RS256}})
	return must(verifier.Verify(t.Context(), token))(t)
}

// A3: a program with a copy of a space's public keys knows a pod by its projected token, which is worthless in the space, in another, and on
// the host.
func TestOtherProgramsKnowAPodByACopyOfTheSpacesKeys(t *testing.T) {
	t.Parallel()
	b := start(t, "--space", "solar", "--space", "lunar")
	solar, lunar, host := b.space(t, "solar"), b.space(t, "lunar"), b.host(t)
	solar.kubectl(t, "create", "serviceaccount", "app")
	solar.run(t, "default", newPod("web", runningAs("app"), func(p *corev1.Pod) {
		p.Spec.AutomountServiceAccountToken = ptr.To(false)
		p.Spec.Volumes = []corev1.Volume{{Name: "token", VolumeSource: corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{Sources: []corev1.VolumeProjection{{
			ServiceAccountToken: &corev1.ServiceAccountTokenProjection{Audience: "vault", Path: "token", ExpirationSeconds: ptr.To(int64(3600))},
		}}}}}}
	}))
	token := podToken(t, host, "berth-solar", "solar--default--web")
	const issuer = "https://kubernetes.default.svc.cluster.local/spaces/solar"
	if got := verify(t, solar, issuer, "vault", token).Subject; got != "system:serviceaccount:default:app" {
		t.Errorf("the pod is %s", got)
	}
	for name, keys := range map[string]publicKeys{"another space": keysOf(t, lunar), "the host": keysOf(t, host)} {
		if _, err := oidc.NewVerifier(issuer, keys, &oidc.Config{ClientID: "vault", SupportedSigningAlgs: []string{oidc.ES256, oidc.RS256}}).Verify(t.Context(), token); err == nil {
			t.Errorf("the keys of %s verify the token", name)
		}
	}
	if _, err := oidc.NewVerifier(issuer, keysOf(t, solar), &oidc.Config{ClientID: "another", SupportedSigningAlgs: []string{oidc.ES256, oidc.RS256}}).Verify(t.Context(), token); err == nil {
		t.Error("the token is good for another program")
	}
	for name, of := range map[string]*cluster{"the space": solar, "another space": lunar, "the host": host} {
		_, err := must(kubernetes.NewForConfig(withToken(of.config, token)))(t).AuthenticationV1().SelfSubjectReviews().
			Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if !apierrors.IsUnauthorized(err) {
			t.Errorf("the API of %s answers the token with %v, want Unauthorized", name, err)
		}
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	nodev1 "k8s.io/api/node/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
)

func pod(name string, change func(*corev1.Pod)) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "main", Image: "nginx"}}},
	}
	if change != nil {
		change(p)
	}
	return p
}

func claim(name, volume string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce}, VolumeName: volume,
			Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
}

func volume(name string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.PersistentVolumeSpec{
			AccessModes:            []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			Capacity:               corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")},
			PersistentVolumeSource: corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{Driver: "d", VolumeHandle: name}},
		},
	}
}

// try is one request, and what it is turned away with: the field or the reason,
// empty if it passes.
type try struct {
	reason string
	do     func(ctx context.Context, client kubernetes.Interface) error
	says   string
}

func createPod(p *corev1.Pod, o metav1.CreateOptions) func(context.Context, kubernetes.Interface) error {
	return func(ctx context.Context, client kubernetes.Interface) error {
		_, err := client.CoreV1().Pods("default").Create(ctx, p, o)
		return err
	}
}

func createSlice(ports int) func(context.Context, kubernetes.Interface) error {
	return func(ctx context.Context, client kubernetes.Interface) error {
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "slice-"}, AddressType: discoveryv1.AddressTypeIPv4,
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"203.0.113.7"}}},
		}
		for i := range ports {
			slice.Ports = append(slice.Ports, discoveryv1.EndpointPort{Name: ptr.To(fmt.Sprintf("p%d", i)), Port: ptr.To(int32(i + 1))})
		}
		_, err := client.DiscoveryV1().EndpointSlices("default").Create(ctx, slice, metav1.CreateOptions{})
		return err
	}
}

func createEndpoints(ports int) func(context.Context, kubernetes.Interface) error {
	return func(ctx context.Context, client kubernetes.Interface) error {
		subset := corev1.EndpointSubset{Addresses: []corev1.EndpointAddress{{IP: "203.0.113.7"}}} //nolint:staticcheck // tenants may still write them
		for i := range ports {
			subset.Ports = append(subset.Ports, corev1.EndpointPort{Name: fmt.Sprintf("p%d", i), Port: int32(i + 1)})
		}
		_, err := client.CoreV1().Endpoints("default").Create(ctx, &corev1.Endpoints{ //nolint:staticcheck // as above
			ObjectMeta: metav1.ObjectMeta{GenerateName: "endpoints-"}, Subsets: []corev1.EndpointSubset{subset}, //nolint:staticcheck // as above
		}, metav1.CreateOptions{})
		return err
	}
}

func createService(ports int) func(context.Context, kubernetes.Interface) error {
	return func(ctx context.Context, client kubernetes.Interface) error {
		v := &corev1.Service{ObjectMeta: metav1.ObjectMeta{GenerateName: "service-"}}
		for i := range ports {
			v.Spec.Ports = append(v.Spec.Ports, corev1.ServicePort{Name: fmt.Sprintf("p%d", i), Port: int32(i + 1)})
		}
		_, err := client.CoreV1().Services("default").Create(ctx, v, metav1.CreateOptions{})
		return err
	}
}

func createIngress(hosts int) func(context.Context, kubernetes.Interface) error {
	return func(ctx context.Context, client kubernetes.Interface) error {
		v := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{GenerateName: "ingress-"}}
		for i := range hosts {
			v.Spec.Rules = append(v.Spec.Rules, networkingv1.IngressRule{Host: fmt.Sprintf("h%d.example.com", i)})
		}
		_, err := client.NetworkingV1().Ingresses("default").Create(ctx, v, metav1.CreateOptions{})
		return err
	}
}

func createPolicy(peers int) func(context.Context, kubernetes.Interface) error {
	return func(ctx context.Context, client kubernetes.Interface) error {
		from := make([]networkingv1.NetworkPolicyPeer, peers)
		for i := range from {
			from[i].NamespaceSelector = &metav1.LabelSelector{}
		}
		_, err := client.NetworkingV1().NetworkPolicies("default").Create(ctx, &networkingv1.NetworkPolicy{
			ObjectMeta: metav1.ObjectMeta{GenerateName: "policy-"},
			Spec:       networkingv1.NetworkPolicySpec{Ingress: []networkingv1.NetworkPolicyIngressRule{{From: from}}},
		}, metav1.CreateOptions{})
		return err
	}
}

func hostile(p *corev1.Pod) {
	p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/"}}}}
}

// M1, M2, M4: what reaches past the space is refused, with its field named,
// however it is asked: created, updated, named by the server, tried out only,
// or by a subresource.
func TestIsolationRejectsWhatReachesPastTheSpace(t *testing.T) {
	s := startSpace(t)
	ctx := t.Context()
	var dry metav1.CreateOptions
	dry.DryRun = []string{metav1.DryRunAll}
	for _, name := range []string{"plain", "assigned"} {
		if _, err := s.outside.CoreV1().Pods("default").Create(ctx, pod(name, nil), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"data", "bound"} {
		if _, err := s.outside.CoreV1().PersistentVolumeClaims("default").Create(ctx, claim(name, ""), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	bind := func(ctx context.Context, client kubernetes.Interface) error {
		return client.CoreV1().Pods("default").Bind(ctx, &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Name: "assigned"}, Target: corev1.ObjectReference{Kind: "Node", Name: "node-1"},
		}, metav1.CreateOptions{})
	}
	patchClaim := func(name, patch string) func(context.Context, kubernetes.Interface) error {
		return func(ctx context.Context, client kubernetes.Interface) error {
			_, err := client.CoreV1().PersistentVolumeClaims("default").Patch(ctx, name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
			return err
		}
	}
	debug := func(c corev1.EphemeralContainerCommon) func(context.Context, kubernetes.Interface) error {
		return func(ctx context.Context, client kubernetes.Interface) error {
			p, err := client.CoreV1().Pods("default").Get(ctx, "plain", metav1.GetOptions{})
			if err != nil {
				return err
			}
			c.Image = "busybox"
			p.Spec.EphemeralContainers = append(p.Spec.EphemeralContainers, corev1.EphemeralContainer{EphemeralContainerCommon: c})
			_, err = client.CoreV1().Pods("default").UpdateEphemeralContainers(ctx, "plain", p, metav1.UpdateOptions{})
			return err
		}
	}
	createVolume := func(name string) func(context.Context, kubernetes.Interface) error {
		return func(ctx context.Context, client kubernetes.Interface) error {
			_, err := client.CoreV1().PersistentVolumes().Create(ctx, volume(name), metav1.CreateOptions{})
			return err
		}
	}
	createRuntime := func(ctx context.Context, client kubernetes.Interface) error {
		_, err := client.NodeV1().RuntimeClasses().Create(ctx, &nodev1.RuntimeClass{
			ObjectMeta: metav1.ObjectMeta{Name: "own"}, Handler: "runc",
		}, metav1.CreateOptions{})
		return err
	}
	createClaim := func(ctx context.Context, client kubernetes.Interface) error {
		_, err := client.CoreV1().PersistentVolumeClaims("default").Create(ctx, claim("foreign", "pvc-of-somebody"), metav1.CreateOptions{})
		return err
	}
	createNode := func(ctx context.Context, client kubernetes.Interface) error {
		_, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}, metav1.CreateOptions{})
		return err
	}
	hijack := func(name string) func(context.Context, kubernetes.Interface) error {
		return func(ctx context.Context, client kubernetes.Interface) error {
			patch := []byte(`{"spec":{"service":{"namespace":"default","name":"mine"},"insecureSkipTLSVerify":true}}`)
			return client.Discovery().RESTClient().Patch(types.MergePatchType).
				AbsPath("/apis/apiregistration.k8s.io/v1/apiservices/" + name).Body(patch).Do(ctx).Error()
		}
	}
	takeOver := func(name, version, group string) func(context.Context, kubernetes.Interface) error {
		return func(ctx context.Context, client kubernetes.Interface) error {
			service := fmt.Appendf(nil, `{"metadata":{"name":%q},"spec":{"group":%q,"version":%q,"groupPriorityMinimum":100,"versionPriority":100,`+
				`"service":{"namespace":"default","name":"mine"},"insecureSkipTLSVerify":true}}`, name, group, version)
			return client.Discovery().RESTClient().Post().AbsPath("/apis/apiregistration.k8s.io/v1/apiservices").
				SetHeader("Content-Type", "application/json").Body(service).Do(ctx).Error()
		}
	}
	byName := pod("", hostile)
	byName.GenerateName = "hostile-"

	outside := map[string]try{
		"a pod":                    {"what a tenant is here for", createPod(pod("fine", nil), metav1.CreateOptions{}), ""},
		"a host path":              {"the node's files", createPod(pod("hostile", hostile), metav1.CreateOptions{}), "spec.volumes[0]"},
		"a host path, dry run":     {"the answer must be the same", createPod(pod("hostile", hostile), dry), "spec.volumes[0]"},
		"a host path, named later": {"generateName", createPod(byName, metav1.CreateOptions{}), "spec.volumes[0]"},
		"the host's network": {"M4", createPod(pod("hostile", func(p *corev1.Pod) { p.Spec.HostNetwork = true }),
			metav1.CreateOptions{}), "hostNetwork"},
		"privilege": {"M4", createPod(pod("hostile", func(p *corev1.Pod) {
			p.Spec.Containers[0].SecurityContext = &corev1.SecurityContext{Privileged: ptr.To(true)}
		}), metav1.CreateOptions{}), "privileged"},
		"a node": {"M2", createPod(pod("hostile", func(p *corev1.Pod) { p.Spec.NodeName = "host-node-1" }), metav1.CreateOptions{}), "spec.nodeName"},
		"a node selector": {"M2", createPod(pod("hostile", func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{"a": "b"} }),
			metav1.CreateOptions{}), "spec.nodeSelector"},
		"the API of Deployments": {"requests of others would go to the tenant's server", hijack("v1.apps"), "apps/v1"},
		"the core API":           {"requests of others would go to the tenant's server", hijack("v1."), "v1"},
		"the API of CRDs":        {"requests of others would go to the tenant's server", hijack("v1.apiextensions.k8s.io"), "apiextensions.k8s.io/v1"},
		"the API of snapshots": {"what is synced would have passed no schema",
			takeOver("v1.snapshot.storage.k8s.io", "v1", "snapshot.storage.k8s.io"), "synced with the host"},
		"the API of gateways": {"what is synced would have passed no schema",
			takeOver("v1.gateway.networking.k8s.io", "v1", "gateway.networking.k8s.io"), "synced with the host"},
		"another API":                    {"a tenant's", takeOver("v1.mine.example.com", "v1", "mine.example.com"), ""},
		"a debug container":              {"kubectl debug", debug(corev1.EphemeralContainerCommon{Name: "debug"}), ""},
		"a debug container of privilege": {"a subresource is no way around", debug(corev1.EphemeralContainerCommon{Name: "root", SecurityContext: &corev1.SecurityContext{Privileged: ptr.To(true)}}), "privileged"},
		"a binding":                      {"the host schedules", bind, "the host schedules"},
		"a claim of a volume":            {"it may be another tenant's", createClaim, "spec.volumeName"},
		"a volume for a claim":           {"it may be another tenant's", patchClaim("data", `{"spec":{"volumeName":"pvc-of-somebody"}}`), "spec.volumeName"},
		"a label on a claim":             {"its own", patchClaim("data", `{"metadata":{"labels":{"a":"b"}}}`), ""},
		"a volume":                       {"it is an object of the space: the host has none of it", createVolume("mine"), ""},
		"a runtime class":                {"it is an object of the space: pods that name it are refused", createRuntime, ""},
		"a node object":                  {"M1", createNode, "hidden in a space"},
	}
	for name, tc := range map[string]struct {
		ports int
		says  string
	}{"endpoints": {1, ""}, "endpoints without end": {101, "ports: Invalid value: 101"}} {
		outside["a slice of "+name] = try{"all spaces' lookups pay for them", createSlice(tc.ports), tc.says}
		outside[name] = try{"slices are made of them", createEndpoints(tc.ports), tc.says}
	}
	outside["a service"] = try{"a tenant's", createService(100), ""}
	outside["a service without end"] = try{"each port is in the environment of each container", createService(101), "spec.ports: Invalid value: 101"}
	outside["containers without end"] = try{"S1", createPod(pod("hostile", func(p *corev1.Pod) {
		for i := range 250 {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: fmt.Sprintf("c%d", i), Image: "nginx"})
		}
	}), metav1.CreateOptions{}), "spec.containers: Invalid value: 251"}
	outside["a pod that is too large"] = try{"S1", createPod(pod("hostile", func(p *corev1.Pod) {
		p.Spec.Containers[0].Args = []string{strings.Repeat("x", 1<<20)}
	}), metav1.CreateOptions{}), "limit pod-bytes"}
	outside["an ingress"] = try{"a tenant's", createIngress(2), ""}
	outside["an ingress without end"] = try{"each host is looked for among all spaces'", createIngress(1001), "spec: Invalid value: 1001"}
	outside["a policy"] = try{"a tenant's", createPolicy(2), ""}
	outside["a policy without end"] = try{"each peer becomes a list of namespaces", createPolicy(10_000), "spec.ingress: Invalid value: 10000"}
	inside := map[string]try{
		"a binding":            {"the syncer says where a pod runs", bind, ""},
		"a volume":             {"the syncer shows bound volumes", createVolume("bound"), ""},
		"a volume for a claim": {"the syncer binds", patchClaim("bound", `{"spec":{"volumeName":"mine"}}`), ""},
		"a host path":          {"controllers act for the tenant", createPod(pod("hostile", hostile), metav1.CreateOptions{}), "spec.volumes[0]"},
		"a claim of a volume":  {"from a tenant's template", createClaim, "spec.volumeName"},
		"a node object":        {"the syncer shows virtual nodes", createNode, ""},
	}
	run := func(t *testing.T, client kubernetes.Interface, tries map[string]try) {
		for name, try := range tries {
			t.Run(name, func(t *testing.T) {
				err := try.do(ctx, client)
				switch {
				case try.says == "" && err != nil:
					t.Errorf("%s: refused: %v", try.reason, err)
				case try.says != "" && (!apierrors.IsForbidden(err) || !strings.Contains(err.Error(), try.says)):
					t.Errorf("%s: got %v, want it forbidden for %q", try.reason, err, try.says)
				}
			})
		}
	}
	t.Run("outside", func(t *testing.T) { run(t, s.outside, outside) })
	t.Run("inside", func(t *testing.T) { run(t, s.inside, inside) })
	// What was stored under older rules can be labelled, and let go, but not grow.
	t.Run("an ingress of older days", func(t *testing.T) {
		if err := createIngress(1001)(ctx, s.inside); err != nil {
			t.Fatal(err)
		}
		ingresses := s.outside.NetworkingV1().Ingresses("default")
		all, err := ingresses.List(ctx, metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		i := slices.IndexFunc(all.Items, func(v networkingv1.Ingress) bool { return len(v.Spec.Rules) == 1001 })
		old := &all.Items[i]
		old.Labels = map[string]string{"a": "b"}
		if old, err = ingresses.Update(ctx, old, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		old.Spec.Rules = append(old.Spec.Rules, networkingv1.IngressRule{Host: "one.more.example"})
		if _, err := ingresses.Update(ctx, old, metav1.UpdateOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "1002") {
			t.Errorf("one more host: %v", err)
		}
	})
	// A tenant's later update keeps the volume that Berth gave the claim.
	t.Run("a label on a bound claim", func(t *testing.T) {
		if err := patchClaim("bound", `{"metadata":{"labels":{"a":"b"}}}`)(ctx, s.outside); err != nil {
			t.Error(err)
		}
	})
}

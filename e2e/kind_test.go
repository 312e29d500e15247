// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/clientcmd"
)

const (
	// envTool is the name of the image of e2e/images/tool, that the nodes of E2E_KUBECONFIG have.
	envTool = "E2E_TOOL_IMAGE"
	// envInCluster is the name of the image of e2e/images/incluster, that they have as well.
	envInCluster = "E2E_INCLUSTER_IMAGE"
	// containers is the namespace of the release that tests with real containers share.
	containers = "berth-containers-test"
)

// containerSpaces are that release's.
var containerSpaces = []string{"containers-a", "containers-b"}

// X1, S1: spaces of a Berth that Helm installed run real containers on several
// nodes, with volumes and a network, and their tenants learn nothing of the nodes.
func TestSpacesRunRealContainers(t *testing.T) {
	host, images := realCluster(t, envImage, envTool, envInCluster)
	nodes := must(host.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}))(t).Items
	if len(nodes) < 2 {
		t.Fatalf("the cluster has %d nodes, want two or more", len(nodes))
	}
	ownRelease(t, host, containers, containerSpaces...)
	helm(t, "install", "berth", "../charts/berth", "--namespace", containers, "--create-namespace", "--take-ownership", "--wait", "--timeout", "3m",
		"--set", fmt.Sprintf("%s,operator.enabled=false,storage.size=1Gi,service.type=NodePort,spaces[0].name=%s,spaces[1].name=%s,sync.nodes=all,sync.daemonsets=translated",
			ofImage(images[0]), containerSpaces[0], containerSpaces[1]))
	k := &kindTest{
		host:  host,
		tool:  images[1],
		asks:  images[2],
		nodes: nodes,
		a:     reached(t, host, nodes[0], containers, containerSpaces[0]),
		b:     reached(t, host, nodes[0], containers, containerSpaces[1]),
	}
	t.Run("a deployment's pods run on all nodes", k.deployment)
	t.Run("a stateful set's pod finds its data on a dynamic volume after a restart", k.volume)
	t.Run("pods of one space reach each other by cluster IP, and those of others don't", k.network)
	t.Run("a pod that runs is resized, debugged, made ready and given tokens of its own", k.changing)
	t.Run("kubectl reads, enters and reaches pods that run", k.streams)
	t.Run("kubectl does what users do at a terminal", k.hands)
	t.Run("a space's controllers work on containers that are real", k.controllers)
	t.Run("a tenant's network policy is enforced", k.policies)
	t.Run("streams carry much both ways, and say how it went", k.transfers)
	t.Run("pods find their own space's services by name, and nobody else's", k.names)
	t.Run("pods reach their space's API by in-cluster config", k.api)
	t.Run("a daemon set's pods run on each node", k.daemons)
	t.Run("tenants don't see the names and addresses of nodes", k.hidden)
}

// reached is a space through a port of a node's. Unlike a port that kubectl
// forwards, it stays when one of its connections is cut.
func reached(t *testing.T, host *cluster, node corev1.Node, release, space string) *cluster {
	t.Helper()
	return reachedWith(t, host, node, release, space, kubeconfigOf(t, host, release, space))
}

// reachedWith is reached with a kubeconfig of its own.
func reachedWith(t *testing.T, host *cluster, node corev1.Node, release, space string, kubeconfig []byte) *cluster {
	t.Helper()
	service := must(host.CoreV1().Services(release).Get(t.Context(), "berth", metav1.GetOptions{}))(t)
	at := net.JoinHostPort(node.Status.Addresses[0].Address, strconv.Itoa(int(service.Spec.Ports[0].NodePort)))
	config := must(clientcmd.Load(kubeconfig))(t)
	for _, c := range config.Clusters {
		server := must(url.Parse(c.Server))(t)
		c.TLSServerName, server.Host = server.Hostname(), at
		c.Server = server.String()
	}
	path := filepath.Join(t.TempDir(), space+".kubeconfig")
	if err := clientcmd.WriteToFile(*config, path); err != nil {
		t.Fatal(err)
	}
	c := newCluster(t, path)
	eventually(t, func() error { // a port opens on the nodes in its own time
		_, err := c.Discovery().ServerVersion()
		return err
	})
	return c
}

type kindTest struct {
	host, a, b *cluster
	tool, asks string // images
	nodes      []corev1.Node
}

// on is the namespace of a space's objects on the host.
func (k *kindTest) on(space int) string { return "berth-" + containerSpaces[space] }

// runs is the template of a pod of e2e/images/tool.
func (k *kindTest) runs(app string, args ...string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": app}},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: new(int64),
			Containers:                    []corev1.Container{{Name: "c", Image: k.tool, Args: args}},
		},
	}
}

func podOf(name string, template corev1.PodTemplateSpec) *corev1.Pod {
	template.Name = name
	return &corev1.Pod{ObjectMeta: template.ObjectMeta, Spec: template.Spec}
}

func (k *kindTest) deployment(t *testing.T) {
	replicas := int32(len(k.nodes))
	template := k.runs("spread", "serve", ":8080")
	template.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
			LabelSelector: metav1.SetAsLabelSelector(template.Labels), TopologyKey: corev1.LabelHostname,
		}},
	}}
	template.Spec.Containers[0].ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
		HTTPGet: &corev1.HTTPGetAction{Path: "/", Port: intstr.FromInt32(8080)},
	}}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "spread"},
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas, Selector: metav1.SetAsLabelSelector(template.Labels), Template: template},
	}
	must(k.a.AppsV1().Deployments("default").Create(t.Context(), deployment, metav1.CreateOptions{}))(t)
	used := map[string]bool{}
	for _, pod := range k.a.awaitPods(t, "default", "app=spread", len(k.nodes)) {
		h := must(k.host.CoreV1().Pods(k.on(0)).Get(t.Context(), containerSpaces[0]+"--default--"+pod.Name, metav1.GetOptions{}))(t)
		used[h.Spec.NodeName] = true
		if pod.Status.PodIP != h.Status.PodIP || pod.Status.PodIP == "" {
			t.Errorf("pod %s has address %q, on the host %q", pod.Name, pod.Status.PodIP, h.Status.PodIP)
		}
	}
	for _, node := range k.nodes {
		if !used[node.Name] {
			t.Errorf("node %s runs no pod of the deployment: only %v do", node.Name, used)
		}
	}
	await(t, k.a.AppsV1().Deployments("default").Get, "spread", func(d *appsv1.Deployment) error {
		if d.Status.ReadyReplicas != replicas {
			return fmt.Errorf("the deployment has %d ready replicas of %d", d.Status.ReadyReplicas, replicas)
		}
		return nil
	})
}

func (k *kindTest) volume(t *testing.T) {
	const file = "/data/starts"
	template := k.runs("keeper", "append", file, "started", "--", "cat", file, "--", "sleep")
	template.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "data", MountPath: "/data"}}
	replicas := int32(1)
	set := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "keeper"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, Selector: metav1.SetAsLabelSelector(template.Labels), Template: template,
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "data"},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources: corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{
						corev1.ResourceStorage: resource.MustParse("16Mi"),
					}},
				},
			}},
		},
	}
	must(k.a.AppsV1().StatefulSets("default").Create(t.Context(), set, metav1.CreateOptions{}))(t)
	first := k.a.awaitRunning(t, "default", "keeper-0")
	if err := k.a.CoreV1().Pods("default").Delete(t.Context(), first.Name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	await(t, k.a.CoreV1().Pods("default").Get, first.Name, func(pod *corev1.Pod) error {
		if pod.UID == first.UID || !isRunning(pod) {
			return errors.New("there is no new pod yet")
		}
		return nil
	})
	eventually(t, func() error {
		return expect("what the second pod read", k.logs(t, 0, first.Name), "started\nstarted\n")
	})
	claim := must(k.a.CoreV1().PersistentVolumeClaims("default").Get(t.Context(), "data-keeper-0", metav1.GetOptions{}))(t)
	if claim.Status.Phase != corev1.ClaimBound {
		t.Errorf("the claim is %s, want it bound", claim.Status.Phase)
	}
}

// logs is what a pod of a space printed, as the host tells.
func (k *kindTest) logs(t *testing.T, space int, name string) string {
	t.Helper()
	host := containerSpaces[space] + "--default--" + name
	out, err := k.host.CoreV1().Pods(k.on(space)).GetLogs(host, &corev1.PodLogOptions{}).DoRaw(t.Context())
	if err != nil {
		return err.Error()
	}
	return string(out)
}

func (k *kindTest) network(t *testing.T) {
	template := k.runs("server", "serve", ":8080")
	server := k.a.run(t, "default", &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "server", Labels: template.Labels}, Spec: template.Spec,
	})
	service := must(k.a.CoreV1().Services("default").Create(t.Context(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "server"},
		Spec: corev1.ServiceSpec{
			Selector: template.Labels, Ports: []corev1.ServicePort{{Port: 80, TargetPort: intstr.FromInt32(8080)}},
		},
	}, metav1.CreateOptions{}))(t)
	byService, byPod := "http://"+service.Spec.ClusterIP, "http://"+server.Status.PodIP+":8080"

	// A service's rules reach the nodes in their own time.
	attempt := 0
	eventually(t, func() error {
		attempt++
		return k.wget(t, k.a, 0, fmt.Sprintf("friend-%d", attempt), byService, corev1.PodSucceeded)
	})
	if out := k.logs(t, 0, fmt.Sprintf("friend-%d", attempt)); !strings.HasPrefix(out, "server serves ") {
		t.Errorf("by cluster IP, a pod of the same space reads %q", out)
	}
	for name, url := range map[string]string{"stranger-by-service": byService, "stranger-by-pod": byPod} {
		if err := k.wget(t, k.b, 1, name, url, corev1.PodFailed); err != nil {
			t.Errorf("%v: does the host's network plugin enforce policies? On the host are\n%s", err,
				k.host.kubectl(t, "get", "pods,networkpolicies", "--all-namespaces", "--output", "wide"))
		}
		// Its question was lost on the way, as a policy has it; it did not fail to ask.
		if out := k.logs(t, 1, name); !strings.Contains(out, "deadline exceeded") && !strings.Contains(out, "refused") {
			t.Errorf("pod %s of another space says %q, want that nobody answered", name, out)
		}
	}
}

// wget has a pod of a space ask a URL, and returns an error unless it ends in a phase.
func (k *kindTest) wget(t *testing.T, space *cluster, index int, name, url string, want corev1.PodPhase) error {
	t.Helper()
	template := k.runs(name, "wget", url)
	template.Spec.RestartPolicy = corev1.RestartPolicyNever
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: template.Spec}
	must(space.CoreV1().Pods("default").Create(t.Context(), pod, metav1.CreateOptions{}))(t)
	var phase corev1.PodPhase
	await(t, space.CoreV1().Pods("default").Get, name, func(pod *corev1.Pod) error {
		if phase = pod.Status.Phase; phase != corev1.PodSucceeded && phase != corev1.PodFailed {
			return fmt.Errorf("pod %s is %s: %+v", name, phase, pod.Status.ContainerStatuses)
		}
		return nil
	})
	if phase != want {
		return fmt.Errorf("pod %s that asks %s is %s, want %s; it says %q", name, url, phase, want, k.logs(t, index, name))
	}
	return nil
}

// N1: what the tests before this one left, and the events of that, name no node.
func (k *kindTest) hidden(t *testing.T) {
	k.a.run(t, "default", podOf("watched", k.runs("watched", "sleep")))
	k.a.awaitEvent(t, "default", "Pod", "watched", "Started")
	for _, kinds := range []string{"events,pods", "persistentvolumeclaims,persistentvolumes,services,endpointslices,nodes"} {
		seen := k.a.kubectl(t, "get", kinds, "-A", "-o", "yaml")
		for _, node := range k.nodes {
			names := []string{node.Name}
			for _, address := range node.Status.Addresses {
				names = append(names, address.Address)
			}
			for _, name := range names {
				for line := range strings.Lines(seen) {
					if strings.Contains(line, name) {
						t.Errorf("kubectl get %s names the host's %s: %s", kinds, name, strings.TrimSpace(line))
					}
				}
			}
		}
	}
}

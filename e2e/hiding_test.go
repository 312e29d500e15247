// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// busy makes a space show as much of its host as it can: volumes, node ports,
// pods that ran, that wait for a place (a fourth of those that keep apart on
// three nodes), for a claim, and for more of the quota than there is.
const busy = `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 6
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      topologySpreadConstraints:
      - {maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: web}}}
      containers:
      - name: c
        image: nginx
        env:
        - {name: NODE, valueFrom: {fieldRef: {fieldPath: spec.nodeName}}}
        - {name: HOST, valueFrom: {fieldRef: {fieldPath: status.hostIP}}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: apart}
spec:
  replicas: 4
  selector: {matchLabels: {app: apart}}
  template:
    metadata: {labels: {app: apart}}
    spec:
      affinity:
        podAntiAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
          - {topologyKey: kubernetes.io/hostname, labelSelector: {matchLabels: {app: apart}}}
      containers: [{name: c, image: nginx}]
---
apiVersion: apps/v1
kind: StatefulSet
metadata: {name: db}
spec:
  serviceName: db
  replicas: 2
  selector: {matchLabels: {app: db}}
  template:
    metadata: {labels: {app: db}}
    spec: {containers: [{name: c, image: postgres, volumeMounts: [{name: data, mountPath: /data}]}]}
  volumeClaimTemplates:
  - metadata: {name: data}
    spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: NodePort, selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: v1
kind: Service
metadata: {name: balanced}
spec: {type: LoadBalancer, selector: {app: web}, ports: [{port: 80}]}
---
apiVersion: batch/v1
kind: Job
metadata: {name: once}
spec: {template: {spec: {restartPolicy: Never, containers: [{name: c, image: busybox}]}}}
---
apiVersion: v1
kind: Pod
metadata: {name: huge}
spec: {containers: [{name: c, image: nginx, resources: {requests: {cpu: "1000"}, limits: {cpu: "1000"}}}]}
---
apiVersion: v1
kind: Pod
metadata: {name: no-claim}
spec:
  containers: [{name: c, image: nginx}]
  volumes: [{name: v, persistentVolumeClaim: {claimName: missing}}]
`

func makeBusy(t *testing.T, space *cluster) {
	t.Helper()
	space.apply(t, busy)
	space.awaitPods(t, "default", "app=web", 6)
	space.awaitPods(t, "default", "app=db", 2)
	space.kubectl(t, "wait", "--for=condition=Complete", "job/once", "--timeout=90s")
	space.awaitEvent(t, "default", "Pod", "huge", "HostQuotaExceeded")
	space.awaitEvent(t, "default", "Pod", "no-claim", "FailedScheduling")
	eventually(t, func() error {
		list, err := space.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.Reason == "FailedScheduling" && strings.HasPrefix(e.InvolvedObject.Name, "apart-") {
				return nil
			}
		}
		return fmt.Errorf("no pod of deployment apart tells that it does not fit")
	})
}

// checkHidden looks at everything that the space's API serves (N1).
func checkHidden(t *testing.T, b *berth, name string) {
	t.Helper()
	space, host := b.space(t, name), b.host(t)
	secrets := hostSecrets(t, b, host, name)
	pages := everyList(t, space)
	maps.Copy(pages, everyPath(t, space))
	pages["kubectl cluster-info dump"] = space.kubectl(t, "cluster-info", "dump", "--all-namespaces")
	pages["kubectl get all"] = space.kubectl(t, "get", "all,pv,pvc,ev,nodes", "-A", "-o", "wide")
	pages["kubectl describe"] = space.kubectl(t, "describe", "pods,pvc,pv,services,endpointslices,events,nodes", "-A")
	if len(pages) < 60 {
		t.Fatalf("looked at %d pages only: %v", len(pages), slices.Sorted(maps.Keys(pages)))
	}
	for _, page := range slices.Sorted(maps.Keys(pages)) {
		for what, secret := range secrets {
			if at := secret.in(pages[page]); at != nil {
				t.Errorf("%s tells of %s: …%s…", page, what, pages[page][max(0, at[0]-120):min(len(pages[page]), at[1]+80)])
			}
		}
	}
}

// secret is a text that a page must not hold.
type secret struct {
	text string
	// around, if set, is what the text must stand in to count.
	around *regexp.Regexp
}

// in finds the secret: begin and end, nil if it is not there. Pages have
// megabytes, so that the pattern is the second question.
func (s secret) in(page string) []int {
	at := strings.Index(page, s.text)
	switch {
	case at < 0:
		return nil
	case s.around == nil:
		return []int{at, at + len(s.text)}
	default:
		return s.around.FindStringIndex(page)
	}
}

// hostSecrets are what nobody in a space may learn.
func hostSecrets(t *testing.T, b *berth, host *cluster, space string) map[string]secret {
	t.Helper()
	word := func(s string) secret {
		return secret{s, regexp.MustCompile(`(^|[^\w.-])` + regexp.QuoteMeta(s) + `($|[^\w.])`)}
	}
	secrets := map[string]secret{
		"the number of nodes":     {" nodes", regexp.MustCompile(`\d+/\d+ nodes`)},
		"some number of nodes":    {"node(s)", regexp.MustCompile(`\d+ node\(s\)`)},
		"the host namespace":      {"berth-" + space, regexp.MustCompile(`berth-` + space + `\b`)},
		"names of host objects":   {space + "--", regexp.MustCompile(`\b` + space + `--`)},
		"names of host nodes":     {"host-node", nil},
		"names of host zones":     {"host-zone", nil},
		"names of host regions":   {"host-region", nil},
		"what simulates nodes":    {"kwok", nil},
		"the provisioner":         {"berth.dev/simulated", nil},
		"paths of volumes":        {"/simulated/", nil},
		"the data directory":      {b.dir, nil},
		"Berth's annotations":     {"berth.dev/", regexp.MustCompile(`berth\.dev/(space|uid|name|namespace|node)\b`)},
		"the host's token secret": {"-token---", nil},
	}
	for _, n := range must(host.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}))(t).Items {
		secrets["node "+n.Name] = word(n.Name)
		for _, a := range n.Status.Addresses {
			secrets["address "+a.Address+" of "+n.Name] = word(a.Address)
		}
		for _, label := range []string{corev1.LabelTopologyZone, corev1.LabelTopologyRegion} {
			secrets[label+" of "+n.Name] = word(n.Labels[label])
		}
		for what, text := range map[string]string{
			"machine": n.Status.NodeInfo.MachineID, "system": n.Status.NodeInfo.SystemUUID, "boot": n.Status.NodeInfo.BootID,
			"pod range": n.Spec.PodCIDR, "provider's name": n.Spec.ProviderID, "kernel": n.Status.NodeInfo.KernelVersion,
		} {
			if text != "" {
				secrets[what+" of "+n.Name] = word(text)
			}
		}
	}
	for _, v := range must(host.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{}))(t).Items {
		secrets["host volume "+v.Name] = word(v.Name)
	}
	if name := must(os.Hostname())(t); name != "localhost" {
		secrets["this machine's name"] = word(name)
	}
	if id, err := os.ReadFile("/etc/machine-id"); err == nil && len(strings.TrimSpace(string(id))) > 0 {
		secrets["this machine's id"] = word(strings.TrimSpace(string(id)))
	}
	for _, a := range must(net.InterfaceAddrs())(t) {
		if ip, _, err := net.ParseCIDR(a.String()); err == nil && !ip.IsLoopback() {
			secrets["this machine's address "+ip.String()] = word(ip.String())
		}
	}
	return secrets
}

// everyList is each list that the space's API has to give, as it writes them.
func everyList(t *testing.T, space *cluster) map[string]string {
	t.Helper()
	_, groups, err := space.Discovery().ServerGroupsAndResources()
	if err != nil {
		t.Fatal(err)
	}
	pages := map[string]string{}
	for _, group := range groups {
		gv := must(schema.ParseGroupVersion(group.GroupVersion))(t)
		for _, r := range group.APIResources {
			if !slices.Contains(r.Verbs, "list") {
				continue
			}
			list, err := space.dynamic.Resource(gv.WithResource(r.Name)).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatalf("list %s %s: %v", group.GroupVersion, r.Name, err)
			}
			pages[group.GroupVersion+" "+r.Name] = string(must(list.MarshalJSON())(t))
		}
	}
	return pages
}

// everyPath is what else there is to read. What would tell of the process, and
// so of all its spaces, must not be served at all.
func everyPath(t *testing.T, space *cluster) map[string]string {
	t.Helper()
	pages := map[string]string{}
	for path, served := range map[string]bool{
		"/": true, "/version": true, "/healthz?verbose": true, "/livez?verbose": true, "/readyz?verbose": true,
		"/api": true, "/apis": true, "/openapi/v2": true, "/openapi/v3": true,
		"/.well-known/openid-configuration": true, "/openid/v1/jwks": true,
		"/api/v1/componentstatuses": false, // U6
		"/metrics":                  false, "/metrics/slis": false, "/debug/pprof/": false, "/debug/pprof/cmdline": false, "/debug/flags/v": false,
		"/logs": false, "/configz": false, "/flagz": false, "/statusz": false,
		"/debug/api_priority_and_fairness/dump_requests": false,
		"/api/v1/nodes/any/proxy/":                       false,
	} {
		url, query, _ := strings.Cut(path, "?")
		request := space.CoreV1().RESTClient().Get().AbsPath(url)
		if query != "" {
			request = request.Param(query, "")
		}
		var code int
		body, err := request.Do(t.Context()).StatusCode(&code).Raw()
		pages["GET "+path] = string(body)
		if isServed := code == http.StatusOK; isServed != served {
			t.Errorf("GET %s answers %d (%v), want it served: %t", path, code, err, served)
		}
	}
	return pages
}

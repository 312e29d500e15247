// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package streams_test

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"github.com/berth-dev/berth/internal/testhost"
)

// S5: whatever a path, a port or a scheme is made of, it leads to the tenant's
// own pods or nowhere: not to the host's API, nor past the pod on its node, nor to
// another space.
func TestPathsLeadNowhereElse(t *testing.T) {
	env := theEnv(t)
	victim := env.space(t, "victim")
	victim.run(t, newPod("safe", "app"))
	s := env.space(t, "robber")
	s.run(t, newPod("web", "app"))
	const pods = "/api/v1/namespaces/default/pods/"
	for name, path := range map[string]string{
		"Dots":              pods + "web/../../../../../secrets/log",
		"EncodedDots":       pods + "..%2f..%2fberth-victim%2fpods%2fvictim--default--safe/log",
		"EncodedName":       pods + "%2e%2e%2fsafe/log",
		"HostName":          pods + "victim--default--safe/log",
		"HostNamespace":     "/api/v1/namespaces/berth-victim/pods/victim--default--safe/log",
		"Container":         pods + "web/log?container=..%2f..%2f..%2fberth-victim%2fvictim--default--safe%2fapp",
		"TwoContainers":     pods + "web/log?container=..%2fx&container=app",
		"PortWithPath":      pods + "web:80%2f..%2f..%2f/proxy/",
		"PortIsPath":        pods + "web:1%2F../../proxy/",
		"PortTooLarge":      pods + "web:99999999999/proxy/",
		"PortNegative":      pods + "web:-1/proxy/",
		"PortOfHost":        pods + "web:80@127.0.0.1:6443/proxy/",
		"Scheme":            pods + "file:web:80/proxy/",
		"SchemeWithHost":    pods + "https:127.0.0.1:6443/proxy/",
		"Service":           "/api/v1/namespaces/default/services/https:kubernetes:443/proxy/api",
		"ServiceOfHost":     "/api/v1/namespaces/default/services/kubernetes.default.svc:443/proxy/",
		"Node":              "/api/v1/nodes/" + hostNode + "/proxy/pods",
		"NodeAddress":       "/api/v1/nodes/127.0.0.1:10250/proxy/pods",
		"PortForward":       pods + "victim--default--safe/portforward?ports=80",
		"ExecHostNamespace": "/api/v1/namespaces/berth-victim/pods/victim--default--safe/exec?command=id&stdout=true",
	} {
		t.Run(name, func(t *testing.T) {
			for _, header := range []http.Header{nil, {"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "X-Stream-Protocol-Version": {"v4.channel.k8s.io"}}} {
				resp := s.open(t, t.Context(), path, header)
				var b strings.Builder
				_, _ = copyTo(&b, resp)
				_ = resp.Body.Close()
				body := b.String()
				if resp.StatusCode < http.StatusBadRequest {
					t.Errorf("answer is %d: %s", resp.StatusCode, body)
				}
				if text := strings.ReplaceAll(body, "berth-victim", ""); tells(s, text+fmt.Sprint(resp.Header)) && !strings.Contains(path, hostNode) {
					t.Errorf("answer tells of the host: %v %s", resp.Header, body)
				}
			}
		})
	}
	if calls := s.kubelet.callsOf(victim.hostPod("safe")); len(calls) > 0 {
		t.Errorf("another space's pod was reached: %v", calls)
	}
}

// A6, S5: no header of a tenant's changes as whom, or what, the host is asked.
func TestHeadersReachTheHostInNoCall(t *testing.T) {
	s := theEnv(t).space(t, "headers")
	s.run(t, newPod("web", "app"))
	const exec = "/api/v1/namespaces/default/pods/web/exec?command=true&stdout=true"
	upgrade := func(more http.Header) http.Header {
		h := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "X-Stream-Protocol-Version": {"v4.channel.k8s.io"}}
		for k, v := range more {
			h[k] = v
		}
		return h
	}
	for name, tc := range map[string]struct {
		header http.Header
		want   int // 0: refused, however
	}{
		"RequestHeaders":     {upgrade(http.Header{"X-Remote-User": {"system:admin"}, "X-Remote-Group": {"system:masters"}}), http.StatusSwitchingProtocols},
		"ListedAsHopByHop":   {upgrade(http.Header{"Connection": {"Upgrade, Impersonate-User, Authorization, X-Remote-User"}}), http.StatusSwitchingProtocols},
		"ImpersonateExtra":   {upgrade(http.Header{"Impersonate-Extra-X": {"y"}}), 0},
		"ImpersonateNobody":  {upgrade(http.Header{"Impersonate-User": {"nobody"}}), http.StatusForbidden},
		"NoUpgrade":          {nil, http.StatusBadRequest},
		"UpgradeOnly":        {http.Header{"Upgrade": {"SPDY/3.1"}}, http.StatusBadRequest},
		"OtherProtocol":      {http.Header{"Connection": {"Upgrade"}, "Upgrade": {"h2c"}}, http.StatusBadRequest},
		"TwoProtocols":       {http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket", "SPDY/3.1"}}, http.StatusBadRequest},
		"ManySubprotocols":   {upgrade(http.Header{"X-Stream-Protocol-Version": append(many(500), "v4.channel.k8s.io")}), 0},
		"HugeSubprotocol":    {upgrade(http.Header{"X-Stream-Protocol-Version": {strings.Repeat("x", 100_000)}}), 0},
		"HugeOtherHeader":    {upgrade(http.Header{"X-Mine": {strings.Repeat("x", 30_000)}}), http.StatusSwitchingProtocols},
		"TokenAsSubprotocol": {http.Header{"Connection": {"Upgrade"}, "Upgrade": {"websocket"}, "Sec-Websocket-Version": {"13"}, "Sec-Websocket-Key": {"AAAAAAAAAAAAAAAAAAAAAA=="}, "Sec-Websocket-Protocol": {"base64url.bearer.authorization.k8s.io.Zm9v, v5.channel.k8s.io"}}, http.StatusSwitchingProtocols},
	} {
		t.Run(name, func(t *testing.T) {
			resp := s.upgrade(t, exec, tc.header)
			if (tc.want != 0 && resp.StatusCode != tc.want) || (tc.want == 0 && resp.StatusCode < http.StatusBadRequest) {
				t.Errorf("answer is %d, want %d: %v", resp.StatusCode, tc.want, resp.Header)
			}
			if tells(s, fmt.Sprint(resp.Header)) {
				t.Errorf("header tells of the host: %v", resp.Header)
			}
		})
	}
}

func many(n int) (protocols []string) {
	for i := range n {
		protocols = append(protocols, fmt.Sprintf("v%d", i))
	}
	return protocols
}

// upgrade sends a request by the version of HTTP that has upgrades, and closes
// what comes of it.
func (s *space) upgrade(t *testing.T, path string, header http.Header) answer {
	t.Helper()
	resp := s.open(t, t.Context(), path, header)
	_ = resp.Body.Close()
	return answer{resp.StatusCode, resp.Header}
}

func (s *space) open(t *testing.T, ctx context.Context, path string, header http.Header) *http.Response { //nolint:revive // t comes first in tests
	t.Helper()
	config := rest.CopyConfig(s.config)
	config.NextProtos = []string{"http/1.1"}
	transport, err := rest.TransportFor(config)
	if err != nil {
		t.Fatal(err)
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.config.Host+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	r.Header = header.Clone()
	if r.Header == nil {
		r.Header = http.Header{}
	}
	resp, err := transport.RoundTrip(r)
	if err != nil {
		t.Fatal(err)
	}
	return resp
}

// N1: kubelets, and what is between them and the host's API, say in errors what
// tenants must not know; and what they say of Berth's own standing is for nobody.
func TestErrorsTellNothingOfTheHost(t *testing.T) {
	s := theEnv(t).space(t, "errors")
	s.run(t, newPod("web", "app"))
	waiting := `container "app" in pod "errors--default--web" is waiting to start: ContainerCreating`
	message := fmt.Sprintf("%s; node %s at 127.0.0.1:%d, /var/log/pods/berth-errors_errors--default--web_1/app", waiting, hostNode, s.kubelet.port())
	code := http.StatusBadRequest
	s.kubelet.refuse(t, func(u *url.URL) (int, string) {
		if strings.Contains(u.Path, s.hostPod("web")) {
			return code, message
		}
		return 0, ""
	})
	header := http.Header{"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "X-Stream-Protocol-Version": {"v4.channel.k8s.io", "portforward.k8s.io"}}
	for _, path := range []string{"log", "exec?command=id&stdout=true", "attach?stdout=true", "portforward"} {
		for _, code = range []int{http.StatusBadRequest, http.StatusNotFound, http.StatusInternalServerError, http.StatusUnauthorized, http.StatusForbidden} {
			t.Run(fmt.Sprintf("%s/%d", path, code), func(t *testing.T) {
				resp := s.open(t, t.Context(), "/api/v1/namespaces/default/pods/web/"+path, header)
				defer func() { _ = resp.Body.Close() }()
				var body strings.Builder
				if _, err := copyTo(&body, resp); err != nil {
					t.Fatal(err)
				}
				text := body.String()
				if resp.StatusCode < http.StatusBadRequest || tells(s, text+fmt.Sprint(resp.Header)) || strings.Contains(text, "127.0.0.1") {
					t.Errorf("answer is %d: %v %s", resp.StatusCode, resp.Header, body.String())
				}
				if code == http.StatusBadRequest && !strings.Contains(text, `container \"app\" in pod \"web\" is waiting to start: ContainerCreating`) {
					t.Errorf("answer does not say what is the matter: %s", text)
				}
				if own := resp.Header["Audit-Id"]; len(own) > 1 || resp.Header.Get("X-Kubernetes-Pf-Flowschema-Uid") != "" {
					t.Errorf("header has the host's in it: %v", resp.Header)
				}
			})
		}
	}
}

// S5: a pod that has not started, and one whose name another had.
func TestANameThatIsUsedAgainLeadsToNoOtherPod(t *testing.T) {
	s := theEnv(t).space(t, "again")
	// The host pod of an earlier pod of the name, as a syncer that was killed may
	// leave it.
	s.run(t, newPod("web", "app"))
	pods := s.host.CoreV1().Pods(s.hostNamespace())
	host, err := pods.Get(t.Context(), s.hostPod("web"), metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	logOf := func() error {
		_, err := s.CoreV1().Pods("default").GetLogs("web", &corev1.PodLogOptions{}).Stream(t.Context())
		return err
	}
	if err := logOf(); err != nil {
		t.Fatal(err)
	}
	before := len(s.kubelet.callsOf(s.hostPod("web")))
	patch := []byte(`{"metadata":{"annotations":{"berth.dev/uid":"another"},"finalizers":["example.com/stay"]}}`)
	if _, err := pods.Patch(t.Context(), host.Name, "application/merge-patch+json", patch, metav1.PatchOptions{}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_, _ = pods.Patch(context.Background(), host.Name, "application/merge-patch+json", []byte(`{"metadata":{"finalizers":null}}`), metav1.PatchOptions{})
	})
	testhost.Eventually(t, "logs of a name that is used again", func(context.Context) error {
		err := logOf()
		if apierrors.IsBadRequest(err) || apierrors.IsNotFound(err) {
			return nil
		}
		before = len(s.kubelet.callsOf(s.hostPod("web")))
		return fmt.Errorf("log: %w", err)
	})
	if resp := s.upgrade(t, "/api/v1/namespaces/default/pods/web/exec?command=id&stdout=true", http.Header{
		"Connection": {"Upgrade"}, "Upgrade": {"SPDY/3.1"}, "X-Stream-Protocol-Version": {"v4.channel.k8s.io"},
	}); resp.StatusCode < http.StatusBadRequest {
		t.Errorf("exec answers %d", resp.StatusCode)
	}
	if after := len(s.kubelet.callsOf(s.hostPod("web"))); after != before {
		t.Errorf("the other pod was reached %d times", after-before)
	}
}

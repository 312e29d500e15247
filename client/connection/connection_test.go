// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package connection

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// kubeconfig is one as Berth writes it, after change.
func kubeconfig(t *testing.T, change func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)) []byte {
	t.Helper()
	config := clientcmdapi.NewConfig()
	cluster, user := clientcmdapi.NewCluster(), clientcmdapi.NewAuthInfo()
	cluster.Server, cluster.CertificateAuthorityData = "https://berth.berth.svc:7443/spaces/solar", []byte("ca")
	user.ClientCertificateData, user.ClientKeyData = []byte("certificate"), []byte("key")
	change(cluster, user)
	config.Clusters["solar"], config.AuthInfos["admin"] = cluster, user
	config.Contexts["solar"] = &clientcmdapi.Context{Cluster: "solar", AuthInfo: "admin"}
	config.CurrentContext = "solar"
	data, err := clientcmd.Write(*config)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func asBerthDoes(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo) {}

// X2: what anybody who can write a Secret might put there doesn't run on the caller's machine, and reads no file of it.
func TestHostileKubeconfigsAreNotFollowed(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*clientcmdapi.Cluster, *clientcmdapi.AuthInfo)
		says   string // empty for one that is taken without what is in it
	}{
		"a program": {func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.ClientCertificateData = nil
			u.Exec = &clientcmdapi.ExecConfig{Command: "/bin/rm", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode}
		}, "no client certificate and no token"},
		"a program beside a token": {func(_ *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			u.Token = "t"
			u.Exec = &clientcmdapi.ExecConfig{Command: "/bin/rm", APIVersion: "client.authentication.k8s.io/v1", InteractiveMode: clientcmdapi.NeverExecInteractiveMode}
		}, ""},
		"files": {func(c *clientcmdapi.Cluster, u *clientcmdapi.AuthInfo) {
			c.CertificateAuthority, u.TokenFile = "/etc/passwd", "/etc/passwd"
		}, ""},
		"a proxy": {func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.ProxyURL = "http://proxy.example" }, ""},
		"no checks": {func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) {
			c.InsecureSkipTLSVerify, c.CertificateAuthorityData = true, nil
		}, ""},
		"plain text": {func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.Server = "http://example" }, "must begin with https://"},
	} {
		t.Run(name, func(t *testing.T) {
			config, err := ParseConfig(kubeconfig(t, tc.change), "berth_solar")
			if tc.says != "" {
				if err == nil || !strings.Contains(err.Error(), tc.says) {
					t.Fatalf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			cluster, user := config.cluster(), config.AuthInfos[config.CurrentContext]
			if user.Exec != nil || user.TokenFile != "" || cluster.CertificateAuthority != "" || cluster.ProxyURL != "" || cluster.InsecureSkipTLSVerify {
				t.Errorf("taken are %+v and %+v", cluster, user)
			}
		})
	}
}

// X2: a forwarded connection checks the certificate for the name that Berth has.
func TestAForwardedServerIsStillCheckedForItsName(t *testing.T) {
	config, err := ParseConfig(kubeconfig(t, asBerthDoes), "berth_solar")
	if err != nil {
		t.Fatal(err)
	}
	forwarded, err := config.through(40001)
	if err != nil {
		t.Fatal(err)
	}
	if c := forwarded.cluster(); c.Server != "https://127.0.0.1:40001/spaces/solar" || c.TLSServerName != "berth.berth.svc" {
		t.Errorf("got %+v", c)
	}
	if c := config.cluster(); c.Server != "https://berth.berth.svc:7443/spaces/solar" || c.TLSServerName != "" {
		t.Errorf("the original is changed: %+v", c)
	}
}

// X2: merging keeps what is in the file, replaces what a merge before has written, and makes the context the current one.
func TestAContextIsMergedIntoAKubeconfig(t *testing.T) {
	file := filepath.Join(t.TempDir(), "new", "config")
	for _, server := range []string{"https://one.example", "https://two.example"} {
		config, err := ParseConfig(kubeconfig(t, func(c *clientcmdapi.Cluster, _ *clientcmdapi.AuthInfo) { c.Server = server }), ContextName("solar", ""))
		if err != nil {
			t.Fatal(err)
		}
		if written, err := config.Merge(file); err != nil || written != file {
			t.Fatalf("got %s (%v)", written, err)
		}
		owner, err := ParseConfig(kubeconfig(t, asBerthDoes), ContextName("solar", "alice"))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := owner.Merge(file); err != nil {
			t.Fatal(err)
		}
		merged, err := clientcmd.LoadFromFile(file)
		if err != nil {
			t.Fatal(err)
		}
		if merged.CurrentContext != "berth_solar_alice" || len(merged.Contexts) != 2 || merged.Clusters["berth_solar"].Server != server ||
			merged.Contexts["berth_solar"].AuthInfo != "berth_solar" || !bytes.Equal(merged.AuthInfos["berth_solar"].ClientKeyData, []byte("key")) {
			t.Errorf("merged is %+v", merged)
		}
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has the mode %v (%v)", info.Mode(), err)
	}
}

// X2: a command gets the kubeconfig and the streams, and its exit code is returned.
func TestACommandRunsWithTheKubeconfig(t *testing.T) {
	config, err := ParseConfig(kubeconfig(t, asBerthDoes), "berth_solar")
	if err != nil {
		t.Fatal(err)
	}
	run := func(script string) (string, error) {
		var out strings.Builder
		err := Run(config, []string{"sh", "-c", script}, Streams{In: strings.NewReader("input"), Out: &out, Err: &out})
		return out.String(), err
	}
	out, err := run(`cat; echo " $KUBECONFIG"; cat "$KUBECONFIG"`)
	if err != nil || !strings.HasPrefix(out, "input /") || !strings.Contains(out, "current-context: berth_solar") {
		t.Errorf("got %q (%v)", out, err)
	}
	if path := strings.Fields(out)[1]; path == "" {
		t.Error("there was no file")
	} else if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("the kubeconfig stays: %v", err)
	}
	for script, code := range map[string]int{"exit 7": 7, "kill -KILL $$": 128 + 9} {
		_, err := run(script)
		if exit, ok := errors.AsType[*ExitError](err); !ok || exit.Code != code {
			t.Errorf("%s: got %v, want code %d", script, err, code)
		}
	}
	if err := Run(config, []string{"/no/such/command"}, Streams{}); err == nil || !strings.Contains(err.Error(), "/no/such/command") {
		t.Errorf("got %v", err)
	}
}

// X2: of several platforms on a host, the one that the address is of is taken.
func TestTheServiceOfTheAddressIsChosen(t *testing.T) {
	service := func(namespace, name string) corev1.Service {
		return corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Spec: corev1.ServiceSpec{
			Selector: map[string]string{"a": "b"}, Ports: []corev1.ServicePort{{Name: "https", Port: 443, TargetPort: intstr.FromString("https")}},
		}}
	}
	headless := corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "c", Name: "external"}}
	one, other := service("a", "berth"), service("b", "berth")
	for name, tc := range map[string]struct {
		services        []corev1.Service
		host, namespace string
		want, says      string
	}{
		"by the name":         {[]corev1.Service{one, other}, "berth.b.svc", "a", "b", ""},
		"by the whole name":   {[]corev1.Service{one, other}, "berth.b.svc.cluster.local", "a", "b", ""},
		"by the namespace":    {[]corev1.Service{one, other}, "berth.example", "b", "b", ""},
		"the only one":        {[]corev1.Service{headless, one}, "berth.example", "secrets", "a", ""},
		"none":                {[]corev1.Service{headless}, "berth.example", "a", "", "--advertise"},
		"too many":            {[]corev1.Service{one, other}, "berth.example", "secrets", "", "a/berth, b/berth"},
		"a name that is like": {[]corev1.Service{one, other}, "berth.bsvc", "secrets", "", "a/berth, b/berth"},
	} {
		got, err := chooseService(tc.services, tc.host, tc.namespace)
		if tc.says != "" {
			if err == nil || !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%s: got %v", name, err)
			}
		} else if err != nil || got.Namespace != tc.want {
			t.Errorf("%s: got %+v (%v)", name, got, err)
		}
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// shards are processes of one platform on a host of the test's own.
type shards struct {
	host *cluster
	// kubeconfig is that of the host.
	kubeconfig string
	platform   string
	processes  map[string]*shardProcess
}

// shardProcess is one of them. Clients reach it at listen, and the others at address.
type shardProcess struct {
	*berth
	listen, address string
	args            []string
}

// startShards starts shards with names on a platform of its own.
func startShards(t *testing.T, platform string, names ...string) *shards {
	t.Helper()
	all := make([][]string, len(names))
	for i, name := range names {
		all[i] = []string{name}
	}
	return startShardsWith(t, platform, all...)
}

// startShardsWith starts shards, each of which is its name and more arguments.
func startShardsWith(t *testing.T, platform string, all ...[]string) *shards {
	t.Helper()
	up := sharedBerth(t)
	s := &shards{host: up.host(t), kubeconfig: filepath.Join(up.dir, "host.kubeconfig"), platform: platform, processes: map[string]*shardProcess{}}
	s.host.kubectl(t, "create", "namespace", platform)
	for _, one := range all {
		name := one[0]
		p := &shardProcess{berth: newBerth(filepath.Join(t.TempDir(), "data")), listen: freeAddress(t), address: freeAddress(t)}
		p.args = append([]string{
			"serve", "--data-dir", p.dir, "--listen", p.listen, "--advertise", "https://" + p.listen, "--host-kubeconfig", filepath.Join(up.dir, "host.kubeconfig"),
			"--platform-name", platform, "--shard", name, "--shard-namespace", platform, "--shard-address", p.address, "--shard-drain-timeout", "60s", "--store-secrets", platform,
		}, one[1:]...)
		t.Cleanup(p.end)
		t.Cleanup(func() {
			if !t.Failed() {
				return
			}
			const last = 60
			lines := strings.Split(strings.TrimSpace(p.output()), "\n")
			t.Logf("the last lines of shard %s:\n%s", name, strings.Join(lines[max(0, len(lines)-last):], "\n"))
		})
		s.processes[name] = p
		p.restart(t)
	}
	for name := range s.processes {
		s.awaitReady(t, name, "True")
	}
	return s
}

func (p *shardProcess) restart(t *testing.T) {
	t.Helper()
	p.process = spawn(t, p.args...)
}

// operate runs an operator, which places spaces on the shards and has them move, until the test ends.
func (s *shards) operate(t *testing.T) {
	t.Helper()
	operator := spawn(t, "operator", "--host-kubeconfig", s.kubeconfig, "--shard-namespace", s.platform)
	t.Cleanup(func() {
		_ = operator.Kill()
		<-operator.done
		if t.Failed() {
			t.Logf("the operator printed:\n%s", operator.output())
		}
	})
}

// berth runs a command of admins on the host.
func (s *shards) berth(t *testing.T, args ...string) string {
	t.Helper()
	stdout, stderr, code := runBerth(t, append(args, "--kubeconfig", s.kubeconfig)...)
	if code != 0 {
		t.Fatalf("berth %s: exit code %d\n%s%s", strings.Join(args, " "), code, stdout, stderr)
	}
	return stdout
}

// awaitReady waits until the Shard object says whether the shard is ready.
func (s *shards) awaitReady(t *testing.T, name, ready string) {
	t.Helper()
	s.host.kubectl(t, "wait", "--namespace", s.platform, "--for=create", "shard/"+name, "--timeout=180s")
	s.host.kubectl(t, "wait", "--namespace", s.platform, "--for=condition=Ready="+ready, "shard/"+name, "--timeout=180s")
}

// create creates a space on a shard, and waits until it is ready.
func (s *shards) create(t *testing.T, space, shard string) {
	t.Helper()
	s.host.apply(t, fmt.Sprintf("apiVersion: berth.dev/v1alpha1\nkind: Space\nmetadata:\n  name: %s\nspec:\n  platformName: %s\n", space, s.platform))
	s.host.kubectl(t, "patch", "space", space, "--subresource=status", "--type=merge", "--patch", fmt.Sprintf(`{"status":{"shard":%q}}`, shard))
	s.host.kubectl(t, "wait", "--for=condition=Ready", "space/"+space, "--timeout=180s")
}

// through returns clients of a space, which another shard has, by a shard.
func (s *shards) through(t *testing.T, shard, space, has string) *cluster {
	t.Helper()
	var kubeconfig []byte
	eventually(t, func() (err error) { // after a move, a moment after the space serves
		kubeconfig, err = os.ReadFile(filepath.Join(s.processes[has].dir, space+".kubeconfig"))
		return err
	})
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, bytes.ReplaceAll(kubeconfig, []byte(s.processes[has].listen), []byte(s.processes[shard].listen)), 0o600); err != nil {
		t.Fatal(err)
	}
	return newCluster(t, path)
}

// D5: any shard serves the spaces of all: each request reaches the space as if its own shard had got it, by a client certificate or a token,
// with watches. A client without a credential gets the same answers for all names while the shards answer, and one space's credential is
// none in another. TestAnUpgradeIsForwarded covers upgrades.
func TestShardsServeEachOthersSpaces(t *testing.T) {
	t.Parallel()
	s := startShards(t, "sharded", "near", "far")
	s.create(t, "shard-one", "near")
	s.create(t, "shard-two", "far")
	if columns := s.host.kubectl(t, "get", "space", "shard-two", "-o", "wide"); !strings.Contains(columns, "far") {
		t.Errorf("kubectl get -o wide says no shard:\n%s", columns)
	}
	two := s.through(t, "near", "shard-two", "far")

	who := must(whoAmI(t, two))(t)
	direct := must(whoAmI(t, s.through(t, "far", "shard-two", "far")))(t)
	if who.Username != direct.Username || strings.Join(who.Groups, " ") != strings.Join(direct.Groups, " ") {
		t.Errorf("through another shard, the client is %v, and directly %v", who, direct)
	}
	watching := must(two.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{FieldSelector: "metadata.name=seen"}))(t)
	defer watching.Stop()
	must(two.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "seen"}, Data: map[string]string{"large": strings.Repeat("x", 900<<10)}}, metav1.CreateOptions{}))(t)
	if event := <-watching.ResultChan(); event.Type != watch.Added {
		t.Errorf("a watch through another shard got %v", event)
	}
	two.run(t, "default", newPod("forwarded"))
	two.awaitRunning(t, "default", "forwarded")

	token := strings.TrimSpace(two.kubectl(t, "create", "token", "default"))
	endpoint := "https://" + s.processes["near"].listen
	for what, test := range map[string]struct {
		path, token string
		code        int
	}{
		"a token of the space":                      {"/spaces/shard-two/version", token, 200},
		"a token of the space, on the short path":   {"/version", token, 200},
		"a token of another space":                  {"/spaces/shard-one/version", token, 401},
		"nobody, at a space of another shard":       {"/spaces/shard-two/version", "", 401},
		"nobody, at a space that doesn't exist":     {"/spaces/shard-none/version", "", 401},
		"a stranger, at a space of another shard":   {"/spaces/shard-two/version", "stranger", 401},
		"a stranger, at a space that doesn't exist": {"/spaces/shard-none/version", "stranger", 401},
	} {
		if code := statusWithToken(t, endpoint+test.path, test.token); code != test.code {
			t.Errorf("%s gets %d, want %d", what, code, test.code)
		}
	}
}

// T9: a shard that restarts continues with its spaces; meanwhile, clients of the others notice nothing, and those of its own are told to
// try again. A second process of the same name waits for the first one to end, so that two never have a space.
func TestAShardRestarts(t *testing.T) {
	t.Parallel()
	s := startShards(t, "restarted", "stays", "restarts")
	s.create(t, "shard-kept", "stays")
	s.create(t, "shard-back", "restarts")
	kept, back := s.through(t, "stays", "shard-kept", "stays"), s.through(t, "stays", "shard-back", "restarts")
	must(back.CoreV1().ConfigMaps("default").Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "kept"}}, metav1.CreateOptions{}))(t)

	process := s.processes["restarts"]
	process.crash(t)
	must(kept.CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{}))(t)
	if code := statusWithToken(t, "https://"+s.processes["stays"].listen+"/spaces/shard-back/version", "any"); code != 503 {
		t.Errorf("a request for a space of a shard that is gone gets %d, want 503", code)
	}
	process.restart(t)
	eventually(t, func() error {
		_, err := back.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})
		return err
	})

	// The same shard again, with a directory of its own, as after a forced deletion of the pod.
	second := *process
	second.berth = newBerth(filepath.Join(t.TempDir(), "data"))
	second.listen, second.address = freeAddress(t), freeAddress(t)
	second.args = []string{
		"serve", "--data-dir", second.dir, "--listen", second.listen, "--advertise", "https://" + second.listen, "--host-kubeconfig", process.args[8],
		"--platform-name", s.platform, "--shard", "restarts", "--shard-namespace", s.platform, "--shard-address", second.address,
	}
	t.Cleanup(second.end)
	second.restart(t)
	eventually(t, func() error {
		return expect("it waits", strings.Contains(second.output(), "Waiting until the earlier process of this shard has ended"), true)
	})
	if conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", second.listen); err == nil {
		_ = conn.Close()
		t.Error("a second process of a shard serves while the first one does")
	}
	must(back.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{}))(t)

	// The first one is stopped, as on a machine that hangs. When it continues, it finds that it was replaced, and ends.
	if err := process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", second.listen)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	if err := process.Signal(syscall.SIGCONT); err != nil {
		t.Fatal(err)
	}
	if code := process.exitCode(t); code == 0 || !strings.Contains(process.output(), "another process is this shard now") {
		t.Errorf("the process that was replaced ended with %d:\n%s", code, process.output())
	}
	// It has another volume, and makes no second, empty store of a space that has one.
	eventually(t, func() error {
		return expect("why the space isn't ready", s.host.kubectl(t, "get", "space", "shard-back", "-o", `jsonpath={.status.conditions[?(@.type=="Ready")].reason}`), v1alpha1.ReasonStoreMissing)
	})
}

// statusWithToken returns the code of the response to a request with a bearer token; with none, if it is empty.
func statusWithToken(t *testing.T, url, token string) int {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // what is served is not what the test is about
	defer client.CloseIdleConnections()
	request := must(http.NewRequestWithContext(t.Context(), http.MethodGet, url, nil))(t)
	if token != "" {
		request.Header.Set("Authorization", "Bearer "+token)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return response.StatusCode
}

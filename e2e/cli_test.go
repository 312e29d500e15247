// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// X3: what stands in the way is told in one line that says what to do.
func TestUpSaysInOneLineWhatStandsInItsWay(t *testing.T) {
	t.Parallel()
	taken := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	t.Cleanup(func() { _ = taken.Close() })
	closed := must(net.Listen("tcp", "127.0.0.1:0"))(t)
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	unreachable := filepath.Join(t.TempDir(), "unreachable.kubeconfig")
	config := clientcmdapi.NewConfig()
	config.Clusters["c"] = &clientcmdapi.Cluster{Server: "https://" + closed.Addr().String()}
	config.Contexts["c"] = &clientcmdapi.Context{Cluster: "c"}
	config.CurrentContext = "c"
	if err := clientcmd.WriteToFile(*config, unreachable); err != nil {
		t.Fatal(err)
	}
	garbled := filepath.Join(t.TempDir(), "garbled.kubeconfig")
	if err := os.WriteFile(garbled, []byte("not a kubeconfig"), 0o600); err != nil {
		t.Fatal(err)
	}
	used := sharedBerth(t).dir

	for name, c := range map[string]struct {
		args []string
		says []string
	}{
		"a port in use":                {[]string{"up", "--listen", taken.Addr().String()}, []string{"--listen=" + taken.Addr().String(), "in use", "choose another"}},
		"a port that is none":          {[]string{"up", "--listen", "127.0.0.1:none"}, []string{"--listen"}},
		"a data directory in use":      {[]string{"up", "--listen", "127.0.0.1:0", "--data-dir", used}, []string{"--data-dir=" + used, "in use", "choose another"}},
		"a data directory that's none": {[]string{"up", "--data-dir", garbled}, []string{"data directory", garbled}},
		"a host that does not answer":  {[]string{"up", "--listen", "127.0.0.1:0", "--host-kubeconfig", unreachable}, []string{"--host-kubeconfig=" + unreachable, "cannot be reached"}},
		"a kubeconfig that is missing": {[]string{"up", "--listen", "127.0.0.1:0", "--host-kubeconfig", "/missing"}, []string{"--host-kubeconfig=/missing", "no such file"}},
		"a kubeconfig that is garbled": {[]string{"up", "--listen", "127.0.0.1:0", "--host-kubeconfig", garbled}, []string{"--host-kubeconfig=" + garbled}},
		"a reserved name":              {[]string{"up", "--space", "system"}, []string{"--space", "system", "reserved"}},
		"another reserved name":        {[]string{"up", "--space", "host"}, []string{"--space", "host", "reserved"}},
		"a name with capitals":         {[]string{"up", "--space", "Team_A"}, []string{"--space", "Team_A", "lower case"}},
		"a name that leads elsewhere":  {[]string{"up", "--space", "../a"}, []string{"--space", "../a"}},
		"a name too long":              {[]string{"up", "--space", strings.Repeat("a", 60)}, []string{"--space", "at most 57"}},
		"no nodes":                     {[]string{"up", "--listen", "127.0.0.1:0", "--nodes", "-1"}, []string{"nodes"}},
		"a flag that is unknown":       {[]string{"up", "--frob"}, []string{"--frob"}},
		"an argument too many":         {[]string{"up", "demo"}, []string{"demo"}},
		"a command that is unknown":    {[]string{"down"}, []string{"down"}},
		"a space that is unknown":      {[]string{"kubeconfig", "nope"}, []string{"nope", "berth up"}},
		"another space":                {[]string{"kubeconfig", "nope", "--data-dir", used}, []string{"nope", "demo"}},
		"a file of another name":       {[]string{"kubeconfig", "../shared/demo", "--data-dir", used}, []string{"not found", "demo"}},
		"no space":                     {[]string{"kubeconfig"}, []string{"arg"}},
		"an output that is unknown":    {[]string{"version", "-o", "xml"}, []string{"xml", "json"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			args := c.args
			if !strings.Contains(strings.Join(args, " "), "--data-dir") && (args[0] == "up" || args[0] == "kubeconfig") {
				args = append(args, "--data-dir", filepath.Join(t.TempDir(), "data"))
			}
			stdout, stderr, code := runBerth(t, args...)
			if err := complaint(stdout, stderr, code, c.says); err != nil {
				t.Errorf("berth %s: %v; it prints:\n%s%s", strings.Join(args, " "), err, stdout, stderr)
			}
		})
	}
}

// complaint checks that a command failed with one line, after those that tell
// what it was doing.
func complaint(stdout, stderr string, code int, says []string) error {
	if code != 1 || stdout != "" {
		return fmt.Errorf("it ends with %d and prints %q, want 1 and nothing", code, stdout)
	}
	progress := regexp.MustCompile(`^\[ *\d+\.\d+s\] |^Stopping`)
	var lines []string
	for line := range strings.Lines(stderr) {
		if !progress.MatchString(line) {
			lines = append(lines, line)
		}
	}
	if len(lines) != 1 || !strings.HasPrefix(lines[0], "berth: ") {
		return errors.New("want one line that begins with the program's name")
	}
	for _, text := range says {
		if !strings.Contains(lines[0], text) {
			return fmt.Errorf("the line does not say %q", text)
		}
	}
	return nil
}

// X3: stopped by either signal, berth goes on where it was.
func TestUpStopsOnSignalsAndGoesOnWhereItWas(t *testing.T) {
	t.Parallel()
	b := start(t)
	pod := b.demo(t).run(t, "default", newPod("constant"))
	hostPod := b.host(t).awaitRunning(t, hostNamespace, hostName("default", "constant"))
	for _, signal := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		b.stop(t, signal)
		b.up(t)
		if now := b.demo(t).awaitRunning(t, "default", "constant"); now.UID != pod.UID || now.Spec.NodeName != pod.Spec.NodeName {
			t.Errorf("after %s, the pod is %s on %s, was %s on %s", signal, now.UID, now.Spec.NodeName, pod.UID, pod.Spec.NodeName)
		}
		if now := b.host(t).awaitRunning(t, hostNamespace, hostPod.Name); now.UID != hostPod.UID {
			t.Errorf("after %s, the host pod is another one", signal)
		}
	}
	for name, mode := range map[string]os.FileMode{".": 0o700, "demo.kubeconfig": 0o600, "host.kubeconfig": 0o600, "berth.log": 0o600} {
		if info := must(os.Stat(filepath.Join(b.dir, name)))(t); info.Mode().Perm() != mode {
			t.Errorf("mode of %s is %s, want %s", name, info.Mode().Perm(), mode)
		}
	}
	if out := b.output(); !strings.Contains(out, "simulated") || !strings.Contains(out, "no containers run") {
		t.Errorf("berth up does not say that its nodes are simulated:\n%s", out)
	}
	stdout, _, code := runBerth(t, "kubeconfig", "demo", "--data-dir", b.dir)
	if want := string(must(os.ReadFile(filepath.Join(b.dir, "demo.kubeconfig")))(t)); code != 0 || stdout != want {
		t.Errorf("berth kubeconfig demo ends with %d and prints:\n%s", code, stdout)
	}
}

// X3: nor is it held up, or hurt, in the midst of starting.
func TestUpEndsQuicklyWhenInterruptedWhileItStarts(t *testing.T) {
	t.Parallel()
	b := newBerth(filepath.Join(t.TempDir(), "data"))
	t.Cleanup(b.end)
	b.logIfFailed(t)
	for _, after := range []string{"Starting the embedded host", "The host is ready", "Space demo is isolated on the host"} {
		b.launch(t)
		eventually(t, func() error {
			if strings.Contains(b.stderr.String(), after) {
				return nil
			}
			return fmt.Errorf("berth up does not get to %q:\n%s", after, b.output())
		})
		began := time.Now()
		b.stop(t, os.Interrupt)
		if took := time.Since(began); took > 15*time.Second {
			t.Errorf("interrupted after %q, it took %s to end", after, took)
		}
		if out := b.stderr.String(); strings.Contains(out, "berth:") {
			t.Errorf("interrupted after %q, it complains:\n%s", after, out)
		}
	}
	b.up(t)
	b.demo(t).run(t, "default", newPod("after-all"))
}

func TestTheOtherCommandsPrintWhatTheySay(t *testing.T) {
	t.Parallel()
	stdout, stderr, code := runBerth(t, "version", "-o", "json")
	version := map[string]string{}
	if err := json.Unmarshal([]byte(stdout), &version); err != nil || code != 0 || stderr != "" {
		t.Errorf("berth version -o json ends with %d (%v):\n%s%s", code, err, stdout, stderr)
	}
	server := must(sharedBerth(t).demo(t).Discovery().ServerVersion())(t)
	if version["kubernetes"] != server.GitVersion || version["berth"] == "" || version["go"] == "" {
		t.Errorf("berth version says %v, the space's API is of %s", version, server.GitVersion)
	}
	for args, says := range map[string][]string{
		"version": {"Berth", "Kubernetes"}, "version -o yaml": {"kubernetes: v"}, "completion bash": {"berth", "complete"}, "completion zsh": {"compdef"},
		"--help": {"up", "kubeconfig", "version", "completion"}, "up --help": {"--data-dir", "--listen", "--space", "--host-kubeconfig", "simulated"},
	} {
		stdout, stderr, code := runBerth(t, strings.Fields(args)...)
		if code != 0 || stderr != "" {
			t.Errorf("berth %s ends with %d: %s", args, code, stderr)
		}
		for _, text := range says {
			if !strings.Contains(stdout, text) {
				t.Errorf("berth %s does not say %q:\n%s", args, text, stdout)
			}
		}
	}
}

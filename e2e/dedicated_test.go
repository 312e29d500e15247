// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

// T9: a space in a process of its own is the same to its tenant, with the same
// data; it is switched by starting berth anew.
func TestASpaceMayHaveAProcessOfItsOwn(t *testing.T) {
	t.Parallel()
	b := start(t, "--space", "own,other")
	before := b.space(t, "own").run(t, "default", newPod("moves"))
	b.stop(t, syscall.SIGTERM)

	b.up(t, "--space", "other", "--dedicated", "own", "--idle-after", "0")
	own, other := b.space(t, "own"), b.space(t, "other")
	children := childrenOf(t, b.Pid)
	if len(children) != 1 {
		t.Fatalf("berth has the processes %v, want one", children)
	}
	if now := own.awaitRunning(t, "default", "moves"); now.UID != before.UID {
		t.Errorf("in its own process the space has another pod")
	}
	own.run(t, "default", newPod("made-there"))
	watch := must(own.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{}))(t)
	own.kubectl(t, "create", "configmap", "seen")
	for event := range watch.ResultChan() {
		if m, ok := event.Object.(metav1.Object); ok && m.GetName() == "seen" {
			break
		}
	}
	watch.Stop()
	if state, message := b.stateOf(t, "own"); state != "Running" {
		t.Errorf("the space is %s: %s", state, message)
	}

	t.Run("reaches its own host namespace only", func(t *testing.T) { checkOwnAccount(t, b) })
	t.Run("is among the metrics", func(t *testing.T) {
		_, text := fetch(t, b.socket(), "http://berth/metrics")
		for _, want := range []string{
			`berth_spaces{state="awake"} 2`, `berth_space_ready{space="own"} 1`, `berth_space_store_limit_bytes{space="own"}`,
			`berth_space_host_objects{kind="pods",space="own"} 2`, `berth_space_sync_queued{space="own"}`,
		} {
			if !strings.Contains(text, "\n"+want) {
				t.Errorf("there is no %s", want)
			}
		}
	})
	t.Run("knows its own by their certificates alone", func(t *testing.T) {
		// The admin's certificate is no secret; its key is.
		certificate, _ := pem.Decode(own.config.CertData)
		header := base64.StdEncoding.EncodeToString(certificate.Bytes)
		for name, client := range map[string]*rest.Config{
			"another's": withServer(other.config, own.config.Host),
			"nobody's":  withToken(own.config, ""),
		} {
			client.NextProtos = []string{"http/1.1"} // which has hop-by-hop headers
			err := must(kubernetes.NewForConfig(client))(t).CoreV1().RESTClient().Get().Resource("pods").
				SetHeader("X-Berth-Client-Certificate", header).SetHeader("Connection", "X-Berth-Client-Certificate").
				Do(t.Context()).Error()
			if !apierrors.IsUnauthorized(err) && !apierrors.IsForbidden(err) {
				t.Errorf("%s request with a certificate in a header gets %v", name, err)
			}
		}
	})
	t.Run("is copied and restored", func(t *testing.T) {
		bucket := "file://" + t.TempDir()
		kept := must(own.CoreV1().ConfigMaps("default").Get(t.Context(), "seen", metav1.GetOptions{}))(t)
		berthDoes(t, "snapshot", "create", "own", "--to", bucket, "--data-dir", b.dir)
		own.kubectl(t, "delete", "configmap", "seen")
		own.kubectl(t, "create", "configmap", "later")
		berthDoes(t, "snapshot", "restore", "own", "--from", bucket, "--data-dir", b.dir)
		if again := await(t, own.CoreV1().ConfigMaps("default").Get, "seen", there); again.UID != kept.UID {
			t.Errorf("the restored config map is %s, want %s", again.UID, kept.UID)
		}
		awaitGone(t, "what came after the snapshot", own.CoreV1().ConfigMaps("default").Get, "later")
		if now := own.awaitRunning(t, "default", "moves"); now.UID != before.UID {
			t.Errorf("the restored space has another pod")
		}
		if now := childrenOf(t, b.Pid); !slices.Equal(now, children) {
			t.Errorf("the restore took another process: %v, was %v", now, children)
		}
	})
	t.Run("is started again, and harms nobody", func(t *testing.T) {
		if err := syscall.Kill(children[0], syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		other.kubectl(t, "get", "pods")
		eventually(t, func() error {
			_, err := own.CoreV1().Pods("default").Get(t.Context(), "made-there", metav1.GetOptions{})
			return err
		})
	})
	t.Run("ends with berth, however that ends", func(t *testing.T) {
		last := childrenOf(t, b.Pid)
		b.crash(t)
		eventually(t, func() error {
			for _, pid := range last {
				if syscall.Kill(pid, 0) == nil {
					return fmt.Errorf("process %d runs on", pid)
				}
			}
			return nil
		})
	})
	b.up(t, "--space", "own,other")
	if now := b.space(t, "own").awaitRunning(t, "default", "moves"); now.UID != before.UID {
		t.Errorf("back in the shared process the space has another pod")
	}
	t.Run("loses the rights of a dedicated space with its process", func(t *testing.T) {
		account := b.host(t).account(t, "berth-own", "berth-syncer")
		eventually(t, func() error {
			for _, what := range []string{"list pods berth-own", "list persistentvolumes"} {
				if mayOnHost(t, account, what) {
					return fmt.Errorf("its account may %s", what)
				}
			}
			return nil
		})
	})
	b.space(t, "own").awaitRunning(t, "default", "made-there")
}

// checkOwnAccount checks what the process of the space own can do on the host (S3): it has no credentials but a token of the
// account of that space.
func checkOwnAccount(t *testing.T, b *berth) {
	t.Helper()
	files := must(filepath.Glob(filepath.Join(b.dir, "dedicated", "own", "*")))(t)
	for i := range files {
		files[i] = filepath.Base(files[i])
	}
	if want := []string{"access.json", "api.sock", "berth.log", "config.json", "control.sock", "declarations.json", "definitions.json", "host.kubeconfig", "host.token", "serving-ca.crt", "tmp"}; !slices.Equal(files, want) {
		t.Errorf("the process is given %q, want %q", files, want)
	}
	account := newCluster(t, filepath.Join(b.dir, "dedicated", "own", "host.kubeconfig"))
	review := must(account.AuthenticationV1().SelfSubjectReviews().Create(t.Context(), &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{}))(t)
	if want := "system:serviceaccount:berth-own:berth-syncer"; review.Status.UserInfo.Username != want {
		t.Errorf("the process is %s on the host, want %s", review.Status.UserInfo.Username, want)
	}
	must(account.CoreV1().Pods("berth-own").Get(t.Context(), "own--default--made-there", metav1.GetOptions{}))(t)
	for _, what := range []string{
		"list pods berth-other", "list pods", "list secrets", "list secrets berth-other", "get secrets kube-system", "create pods berth-other", "create pods kube-system",
		"list events", "list configmaps", "update namespaces", "delete resourcequotas berth-own", "create serviceaccounts/token berth-own", "impersonate serviceaccounts berth-own",
		"impersonate serviceaccounts berth-other", "get spaces.berth.dev", "create rolebindings.rbac.authorization.k8s.io berth-own", "list nodes", "update persistentvolumes",
	} {
		if mayOnHost(t, account, what) {
			t.Errorf("the process may %s", what)
		}
	}
	for _, what := range []string{"list pods berth-own", "watch secrets berth-own", "list persistentvolumes", "list ingresses.networking.k8s.io"} {
		if !mayOnHost(t, account, what) {
			t.Errorf("the process may not %s", what)
		}
	}
}

// childrenOf lists the processes that a process started and that run.
func childrenOf(t *testing.T, pid int) (children []int) {
	t.Helper()
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	if err != nil || len(stats) == 0 {
		t.Skipf("cannot list processes: %v", err)
	}
	for _, path := range stats {
		data, err := os.ReadFile(path)
		if err != nil {
			continue // it has ended
		}
		// pid (name) state parent ...
		_, rest, _ := strings.Cut(string(data), ") ")
		fields := strings.Fields(rest)
		if len(fields) < 2 || fields[1] != strconv.Itoa(pid) || fields[0] == "Z" {
			continue
		}
		child, _ := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		children = append(children, child)
	}
	return children
}

// T9, S3: of two spaces that are set to Dedicated at once, and only one of which may be, one moves. The other one serves as before,
// and says why it hasn't moved.
func TestTwoSpacesForTheLastPlaceBothServe(t *testing.T) {
	t.Parallel()
	b := start(t, "--space", "one,two", "--dedicated-max", "1")
	host := b.host(t)
	isolate := func(how string) {
		t.Helper()
		host.kubectl(t, "patch", "spaces", "one", "two", "--type=merge", "-p", `{"spec": {"isolation": "`+how+`"}}`)
	}
	isolation := func() string {
		return host.kubectl(t, "get", "spaces", "one", "two", "-o", "jsonpath={.items[*].status.isolation}")
	}
	for round := range 3 {
		isolate("Dedicated")
		eventually(t, func() error {
			moved := isolation()
			if moved != "Dedicated Shared" && moved != "Shared Dedicated" {
				return fmt.Errorf("the spaces are %s", moved)
			}
			stays := map[bool]string{true: "two", false: "one"}[strings.HasPrefix(moved, "Dedicated")]
			if ready := readyOf(t, host, stays); !strings.Contains(ready, "--dedicated-max") {
				return fmt.Errorf("space %s is %q", stays, ready)
			}
			return nil
		})
		for _, name := range []string{"one", "two"} {
			b.space(t, name).kubectl(t, "create", "configmap", fmt.Sprintf("round-%d", round))
		}
		isolate("Shared")
		eventually(t, func() error {
			if now := isolation(); now != "Shared Shared" {
				return fmt.Errorf("the spaces are %s", now)
			}
			return nil
		})
	}
}

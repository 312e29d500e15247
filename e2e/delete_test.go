// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const ownClass = `
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: urgent}
value: 5
preemptionPolicy: Never
`

// T7: a space that is deleted leaves nothing, on the host and on disk, and other spaces go on; its name can be used again.
func TestADeletedSpaceLeavesNothing(t *testing.T) {
	t.Parallel()
	b := start(t, "--space", "doomed,other", "--dedicated", "apart", configured(t, "spaceDefaults: {sync: [{resource: ownpriorityclasses, value: \"1000\"}]}"))
	host, other := b.host(t), b.space(t, "other")
	for _, name := range []string{"doomed", "apart"} {
		space := b.space(t, name)
		space.apply(t, held+"---"+ownClass)
		eventually(t, func() error {
			left := traces(t, host, b.dir, name)
			if len(left) < 5 || !strings.Contains(strings.Join(left, " "), "urgent") || !strings.Contains(strings.Join(left, " "), "volume ") {
				return fmt.Errorf("the test finds only %q of %s", left, name)
			}
			return nil
		})
	}
	watch := must(other.CoreV1().ConfigMaps("default").Watch(t.Context(), metav1.ListOptions{}))(t)
	defer watch.Stop()

	before := b.space(t, "doomed")
	out, progress, code := runBerth(t, "delete", "doomed", "apart", "--data-dir", b.dir)
	if code != 0 || out != "space/doomed deleted\nspace/apart deleted\n" {
		t.Fatalf("berth delete ended with %d: %s%s", code, out, progress)
	}
	for _, name := range []string{"doomed", "apart"} {
		if left := traces(t, host, b.dir, name); len(left) > 0 {
			t.Errorf("%s has left %q", name, left)
		}
	}
	if out, _, _ := runBerth(t, "spaces", "-o", "name", "--data-dir", b.dir); out != "space.berth.dev/other\n" {
		t.Errorf("berth spaces prints %q", out)
	}
	if _, err := before.CoreV1().Pods("default").List(t.Context(), metav1.ListOptions{}); !apierrors.IsUnauthorized(err) {
		t.Errorf("the API of a space that is deleted answers %v, want what one that never was does", err)
	}
	other.kubectl(t, "create", "configmap", "after")
	for event := range watch.ResultChan() { // which was not interrupted
		if o, ok := event.Object.(*corev1.ConfigMap); ok && o.Name == "after" {
			break
		}
	}

	b.stop(t, syscall.SIGTERM)
	b.up(t, "--space", "doomed,other")
	if _, err := b.space(t, "doomed").CoreV1().ConfigMaps("default").Get(t.Context(), "own", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("a new space of the name has an object of the one that was deleted: %v", err)
	}
}

// traces are what a space has on the host and on disk.
func traces(t *testing.T, host *cluster, dir, space string) (found []string) {
	t.Helper()
	ctx, namespace := t.Context(), "berth-"+space
	if _, err := host.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		found = append(found, "namespace "+namespace)
	}
	for _, v := range must(host.CoreV1().PersistentVolumes().List(ctx, metav1.ListOptions{}))(t).Items {
		if ref := v.Spec.ClaimRef; ref != nil && ref.Namespace == namespace {
			found = append(found, "volume "+v.Name)
		}
	}
	labelled := metav1.ListOptions{LabelSelector: "berth.dev/space=" + space}
	for _, c := range must(host.SchedulingV1().PriorityClasses().List(ctx, labelled))(t).Items {
		found = append(found, "class "+c.Name)
	}
	for _, r := range must(host.RbacV1().ClusterRoles().List(ctx, labelled))(t).Items {
		found = append(found, "role "+r.Name)
	}
	for _, r := range must(host.RbacV1().ClusterRoleBindings().List(ctx, labelled))(t).Items {
		found = append(found, "binding "+r.Name)
	}
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if strings.Contains(filepath.Base(path), space) && !strings.Contains(path, "/discovery/") { // of kubectl
			found = append(found, path)
		}
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// T7: what an admin wants to keep is kept: the store for a space of the same name, or a snapshot.
func TestADeletedSpacesDataIsKeptAsThePolicySays(t *testing.T) {
	t.Parallel()
	bucket := filepath.Join(t.TempDir(), "snapshots")
	b := start(t, "--space", "retained,copied,other", "--snapshot-to", "file://"+bucket, "--snapshot-every", "24h")
	for _, name := range []string{"retained", "copied"} {
		b.space(t, name).kubectl(t, "create", "configmap", "kept", "--from-literal=of="+name)
	}
	if _, out, code := runBerth(t, "delete", "retained", "--policy", "Keep", "--data-dir", b.dir); code == 0 || !strings.Contains(out, "policy=Keep: must be Delete, Retain, or Snapshot") {
		t.Errorf("a policy that there is not ends with %d: %s", code, out)
	}
	if _, out, code := runBerth(t, "delete", "nowhere", "--data-dir", b.dir); code == 0 || !strings.Contains(out, `"nowhere" not found`) {
		t.Errorf("a space that there is not ends with %d: %s", code, out)
	}
	for name, policy := range map[string]string{"retained": "Retain", "copied": "Snapshot"} {
		if _, out, code := runBerth(t, "delete", name, "--policy", policy, "--data-dir", b.dir); code != 0 {
			t.Fatalf("delete %s with %s: %s", name, policy, out)
		}
		if _, err := b.host(t).CoreV1().Namespaces().Get(t.Context(), "berth-"+name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Errorf("the host namespace of %s: %v", name, err)
		}
	}
	if out, _, _ := runBerth(t, "snapshot", "list", "copied", "--data-dir", b.dir); strings.Count(out, "copied") != 1 {
		t.Errorf("there are these snapshots:\n%s", out)
	}
	b.stop(t, syscall.SIGTERM)
	b.up(t, "--space", "other", "--snapshot-to", "file://"+bucket)
	if out, _, _ := runBerth(t, "spaces", "-o", "name", "--data-dir", b.dir); out != "space.berth.dev/other\n" {
		t.Errorf("what is kept is served: %q", out)
	}
	b.stop(t, syscall.SIGTERM)
	b.up(t, "--space", "retained,other", "--snapshot-to", "file://"+bucket)
	if got := b.space(t, "retained").kubectl(t, "get", "configmap", "kept", "-o", "jsonpath={.data.of}"); got != "retained" {
		t.Errorf("a space of the name has %q", got)
	}
}

// T7, T8: a kill at any request of a deletion to the host loses nothing of it: the next run goes on.
func TestADeletionGoesOnAfterACrash(t *testing.T) {
	t.Parallel()
	namespace := func(name string, r *http.Request) bool {
		return r.Method == http.MethodDelete && strings.HasSuffix(r.URL.Path, "/namespaces/berth-"+name)
	}
	release := func(name string, r *http.Request) bool { // of the object, the last step
		return r.Method == http.MethodPatch && strings.HasSuffix(r.URL.Path, "/spaces/"+name)
	}
	for _, at := range []struct {
		name, next string
		request    func(name string, r *http.Request) bool
		after      []string // has the host do it, by kubectl
	}{
		{"killed-before", "next-a", namespace, nil},
		{"killed-after", "next-b", namespace, []string{"delete", "namespace", "berth-killed-after", "--wait=false"}},
		{"killed-at-last", "next-c", release, nil},
		{"killed-at-the-end", "next-d", release, []string{"patch", "space", "killed-at-the-end", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`}},
	} {
		t.Run(at.name, func(t *testing.T) {
			t.Parallel()
			var deleting atomic.Bool
			reached := make(chan struct{}, 1)
			host := hostBehind(t, func(w http.ResponseWriter, r *http.Request) bool {
				if !deleting.Load() || !at.request(at.name, r) {
					return false
				}
				if at.after != nil {
					if out, err := sharedBerth(t).host(t).tryKubectl(t, "", at.after...); err != nil {
						t.Errorf("%v: %s", err, out)
					}
				}
				select {
				case reached <- struct{}{}:
				default:
				}
				_, _ = io.Copy(io.Discard, r.Body) // else the server does not see its client end
				<-r.Context().Done()               // the process is killed
				w.WriteHeader(http.StatusServiceUnavailable)
				return true
			})
			b := newBerth(filepath.Join(t.TempDir(), "data"))
			t.Cleanup(b.end)
			b.logIfFailed(t)
			b.up(t, "--host-kubeconfig", host, "--space", at.name)
			space := b.space(t, at.name)
			await(t, space.CoreV1().ServiceAccounts("default").Get, "default", there) // pods are refused until then
			space.apply(t, held)
			deleting.Store(true)
			if _, out, code := runBerth(t, "delete", at.name, "--wait=false", "--data-dir", b.dir); code != 0 {
				t.Fatalf("berth delete: %s", out)
			}
			select {
			case <-reached:
			case <-time.After(time.Minute):
				t.Fatal("the host is not asked")
			}
			if state, _ := b.stateOf(t, at.name); state != "Deleting" {
				t.Errorf("the space is %s", state)
			}
			if at.next == "next-a" {
				if _, out, code := runBerth(t, "delete", at.name, "--policy", "Retain", "--data-dir", b.dir); code == 0 || !strings.Contains(out, "already being deleted with policy=Delete") {
					t.Errorf("another policy, too late, ends with %d: %s", code, out)
				}
			}
			b.crash(t)
			deleting.Store(false)
			stray := filepath.Join(b.dir, "spaces", "stray") // somebody's file is no reason not to serve
			if err := os.WriteFile(stray, nil, 0o600); err != nil {
				t.Fatal(err)
			}
			b.launch(t, "--host-kubeconfig", host, "--space", at.next)
			eventually(t, func() error {
				shared := sharedBerth(t).host(t)
				left := traces(t, shared, b.dir, at.name)
				if out, err := shared.tryKubectl(t, "", "get", "space", at.name); err == nil {
					left = append(left, out)
				}
				if len(left) > 0 {
					return fmt.Errorf("there are left %q", left)
				}
				return nil
			})
		})
	}
}

// T7: a space that never started, because its host namespace is somebody else's, can be deleted, and theirs stays.
func TestASpaceThatNeverStartedIsDeleted(t *testing.T) {
	t.Parallel()
	b := start(t, "--space", "other")
	host := b.host(t)
	host.namespace(t, "berth-taken")
	b.stop(t, syscall.SIGTERM)
	b.up(t, "--space", "other,taken")
	if _, out, code := runBerth(t, "delete", "taken", "--data-dir", b.dir); code != 0 {
		t.Fatalf("berth delete: %s", out)
	}
	if ns := must(b.host(t).CoreV1().Namespaces().Get(t.Context(), "berth-taken", metav1.GetOptions{}))(t); ns.DeletionTimestamp != nil {
		t.Error("a namespace that is not the space's is deleted")
	}
	if _, err := os.Stat(filepath.Join(b.dir, "spaces", "taken")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its directory: %v", err)
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// D6, T9: the operator spreads new spaces over the shards, `berth space move` and `berth shard drain` move them, and shards that restart
// one after the other move theirs away before, so that no request fails.
func TestShardsRestartOneAfterTheOtherUnderLoad(t *testing.T) {
	t.Parallel()
	s := startShards(t, "rolling", "roll-0", "roll-1", "roll-2")
	s.operate(t)
	names := []string{"roll-a", "roll-b", "roll-c", "roll-d", "roll-e", "roll-f"}
	for _, name := range names {
		s.host.apply(t, fmt.Sprintf("apiVersion: berth.dev/v1alpha1\nkind: Space\nmetadata:\n  name: %s\nspec:\n  platformName: %s\n", name, s.platform))
	}
	on := map[string]int{}
	for _, name := range names {
		s.host.kubectl(t, "wait", "--for=condition=Ready", "space/"+name, "--timeout=90s")
		on[s.shardOf(t, name)]++
	}
	if len(on) != 3 || slices.Max(slices.Collect(maps.Values(on))) > 3 {
		t.Errorf("the operator placed the spaces on %v", on)
	}
	from := s.shardOf(t, "roll-a")
	service := s.service()
	var clients []*cluster
	for _, name := range names {
		clients = append(clients, service.client(t, name), service.client(t, name))
	}
	to := "roll-1"
	if from == to {
		to = "roll-2"
	}
	s.berth(t, "space", "move", "roll-a", "--to", to, "--timeout", "180s")
	if is := s.shardOf(t, "roll-a"); is != to {
		t.Errorf("berth space move left the space on %s, want %s", is, to)
	}
	if list := s.berth(t, "shard", "list"); !strings.Contains(list, "roll-2") {
		t.Errorf("berth shard list printed:\n%s", list)
	}
	s.berth(t, "shard", "drain", "roll-0", "--timeout", "90s")
	for _, name := range names {
		if s.shardOf(t, name) == "roll-0" {
			t.Errorf("%s is on the shard that was drained", name)
		}
	}
	s.berth(t, "shard", "uncordon", "roll-0")

	l, stop := loaded(t, clients)
	for _, name := range []string{"roll-2", "roll-1", "roll-0"} {
		process := s.processes[name]
		service.remove(name)
		if err := process.Signal(syscall.SIGTERM); err != nil {
			t.Fatal(err)
		}
		if code := process.exitCode(t); code != 0 {
			t.Errorf("shard %s ended with %d", name, code)
		}
		if left := s.dirsOn(name); len(left) > 0 {
			t.Errorf("shard %s ended with %v", name, left)
		}
		process.restart(t)
		s.awaitReady(t, name, "True")
		service.add(name)
	}
	stop()
	l.check(t)
}

// checkStopDuringAMove tells a shard to stop while its last space is handed over, which doesn't run then. The host delays that: it refuses
// for longer than an empty shard takes to stop that the space's object names the other shard.
func (s *shards) checkStopDuringAMove(t *testing.T, space, from, to string, client *cluster) {
	t.Helper()
	s.host.apply(t, fmt.Sprintf(`
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: undecided}
spec:
  matchConstraints: {resourceRules: [{apiGroups: [berth.dev], apiVersions: ['*'], resources: [spaces/status], operations: [UPDATE], resourceNames: [%s]}]}
  validations: [{expression: object.status.shard == oldObject.status.shard, message: not yet}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: undecided}
spec: {policyName: undecided, validationActions: [Deny]}
`, space))
	spaces := s.host.dynamic.Resource(v1alpha1.GroupVersion.WithResource("spaces"))
	eventually(t, func() error {
		_, err := spaces.Patch(t.Context(), space, types.MergePatchType, []byte(`{"status":{"shard":"nowhere"}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}, "status")
		if !apierrors.IsInvalid(err) && !apierrors.IsForbidden(err) {
			return fmt.Errorf("the policy does not hold yet: %w", err)
		}
		return nil
	})
	s.beginMove(t, space, to)
	requests := make(chan error, 1)
	eventually(t, func() error { // until requests wait for the end of the move
		go func() {
			_, err := client.CoreV1().ConfigMaps("default").Get(t.Context(), "kept", metav1.GetOptions{})
			requests <- err
		}()
		select {
		case err := <-requests:
			return fmt.Errorf("the request was served with %w", err)
		case <-time.After(time.Second):
			return nil
		}
	})
	stops := s.processes[from]
	if err := stops.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	select {
	case <-stops.done:
		t.Errorf("the shard ended while %s was handed over:\n%s", space, stops.output())
	case <-time.After(7 * time.Second):
	}
	s.host.kubectl(t, "delete", "validatingadmissionpolicybinding,validatingadmissionpolicy", "undecided")
	if code := stops.exitCode(t); code != 0 {
		t.Errorf("the shard ended with %d", code)
	}
	if left := s.dirsOn(from); len(left) > 0 {
		t.Errorf("the shard ended with %v", left)
	}
	if err := <-requests; err != nil {
		t.Errorf("the request that waited failed: %v", err)
	}
}

// service leads to the shards that serve, one after the other, as a Service of Kubernetes does.
type service struct {
	of *shards

	mu   sync.Mutex
	has  []string // names of shards
	next int
}

func (s *shards) service() *service {
	return &service{of: s, has: slices.Sorted(maps.Keys(s.processes))}
}

func (v *service) remove(shard string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.has = slices.DeleteFunc(v.has, func(name string) bool { return name == shard })
}

func (v *service) add(shard string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.has = append(v.has, shard)
}

// dial connects to one of the shards.
func (v *service) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	v.mu.Lock()
	v.next++
	address := v.of.processes[v.has[v.next%len(v.has)]].listen
	v.mu.Unlock()
	return (&net.Dialer{}).DialContext(ctx, network, address)
}

// client returns clients of a space by the service.
func (v *service) client(t *testing.T, space string) *cluster {
	t.Helper()
	config := must(clientcmd.BuildConfigFromFlags("", filepath.Join(v.of.processes[v.of.shardOf(t, space)].dir, space+".kubeconfig")))(t)
	config.Dial, config.QPS = v.dial, -1
	return &cluster{Interface: must(kubernetes.NewForConfig(config))(t), config: config}
}

// dirsOn returns the spaces whose files a shard has.
func (s *shards) dirsOn(shard string) (names []string) {
	entries, _ := os.ReadDir(filepath.Join(s.processes[shard].dir, "spaces"))
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

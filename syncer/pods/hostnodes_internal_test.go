// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// M1, N1: of the host's nodes, a syncer keeps those that the space's node selector
// leaves, and is given no work for others; where the host names one, it hides that.
func TestASyncerKeepsTheNodesOfItsSpace(t *testing.T) {
	pool := func(name, pool, version string) *corev1.Node {
		return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, UID: "u", ResourceVersion: version, Labels: map[string]string{"pool": pool}}}
	}
	syncOptions, err := resources.Parse([]string{"nodes=all"})
	if err != nil {
		t.Fatal(err)
	}
	f := hostcache.NewRouter("", nil)
	h := &hostcache.Host{Options: hostcache.Options{Sync: syncOptions}, Routers: map[string]*hostcache.Router{resources.Nodes: f}}
	h.WatchNodes(f)
	if err := f.Replace([]any{pool("host-a", "a", "1"), pool("host-b", "b", "1")}, "1"); err != nil {
		t.Fatal(err)
	}
	s := New(&engine.Engine{Host: h, Sync: syncOptions, Space: translate.Space{Name: "demo", NodeKey: []byte("key")}, Work: map[string]func(context.Context, types.NamespacedName) (time.Duration, error){}}, Config{
		Where: translate.Placement{Selector: map[string]string{"pool": "a"}}})
	work := map[string]int{}
	s.followHost(func(alias string, _ func(engine.Key)) { work[alias]++ })
	if err := s.Sources.Open(&engine.Queue{}); err != nil {
		t.Fatal(err)
	}
	defer s.Sources.Close()
	a, b := s.Space.NodeAlias("host-a"), s.Space.NodeAlias("host-b")
	asks := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "p"}}
	asks.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{{Key: "metadata.name", Operator: corev1.NodeSelectorOpIn, Values: []string{a}}}}},
	}}}
	denied := apierrors.NewForbidden(corev1.Resource("pods"), "p", errors.New(`a webhook of the admin's: {"key":"metadata.name","values":["host-a"]} is not to be asked for`))
	if r, told := s.Explain(asks, denied); !told || strings.Contains(r.Message, "host-a") || !strings.Contains(r.Message, a) {
		t.Errorf("a host that speaks of the node that a pod is for: its tenant is told %q", r.Message)
	}
	for _, step := range []struct {
		reason string
		event  func() error
		has    []string
		work   map[string]int
	}{
		{"what is there at first", func() error { return nil }, []string{a}, map[string]int{a: 1}},
		{"another's is another's business", func() error { return f.Delete(pool("host-b", "b", "1")) }, []string{a}, map[string]int{}},
		{"one comes", func() error { return f.Add(pool("host-b", "a", "2")) }, []string{a, b}, map[string]int{b: 1}},
		{"one is given away", func() error { return f.Update(pool("host-a", "b", "3")) }, []string{b}, map[string]int{a: 1}},
		{"and what becomes of it then", func() error { return f.Delete(pool("host-a", "b", "3")) }, []string{b}, map[string]int{}},
		{"one goes", func() error { return f.Delete(pool("host-b", "a", "2")) }, nil, map[string]int{b: 1}},
		{"and is made anew", func() error { return f.Add(pool("host-b", "a", "4")) }, []string{b}, map[string]int{b: 1}},
	} {
		if err := step.event(); err != nil {
			t.Fatal(err)
		}
		for _, alias := range []string{a, b} {
			if _, has := s.hostNode(alias); has != slices.Contains(step.has, alias) {
				t.Errorf("%s: has %s: %t", step.reason, alias, has)
			}
		}
		if len(s.ownNodes.names) != len(step.has) || len(s.ownNodes.aliases) != len(step.has) || !maps.Equal(work, step.work) {
			t.Errorf("%s: keeps %v, and has the work %v, want %v of %v", step.reason, s.ownNodes.names, work, step.work, step.has)
		}
		clear(work)
	}
}

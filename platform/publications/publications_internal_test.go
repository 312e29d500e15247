// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package publications

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// P1: what a space has follows its publications, its labels, and those of its tenant, and what concerns other spaces doesn't touch it.
func TestChangesConcernTheSpacesOfAPublication(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	rendered := make(chan string, 10)
	p, err := New(func(space string) { rendered <- space }, klog.Background())
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	var group sync.WaitGroup
	group.Go(func() { p.follow(ctx) })
	defer group.Wait()
	defer stop()
	for _, s := range []*v1alpha1.Space{space("a", "solar", "x"), space("b", "", "x", "y"), space("c", ""), space("d", "", "absent")} {
		p.Observe(s)
	}
	if objects, known := p.Published("a", "solar", []string{"x"}); len(objects) > 0 || known {
		t.Errorf("before the objects were read, a space has %v, known %v", objects, known)
	}
	if objects, known := p.Published("c", "", nil); len(objects) > 0 || !known {
		t.Errorf("a space without publications has %v, known %v", objects, known)
	}
	x, y := object("x", "1"), object("y", "1")
	if err := p.store.Replace([]any{x, y}, ""); err != nil {
		t.Fatal(err)
	}
	await(t, rendered, "a", "b", "d")
	y = object("y", "2")
	if err := p.store.Update(y); err != nil {
		t.Fatal(err)
	}
	await(t, rendered, "b")

	changed := space("a", "solar", "x")
	p.Observe(changed) // without a change
	changed.Labels = map[string]string{"tier": "gold"}
	changed.Annotations = map[string]string{v1alpha1.AnnotationTenantLabels: `{"team":"sun"}`}
	p.Observe(changed)
	await(t, rendered, "a")
	objects, known := p.Published("a", "solar", []string{"x"})
	if len(objects) != 1 || !known {
		t.Fatalf("the space has %v, known %v", objects, known)
	}
	want := map[string]any{"text": "solar sun a gold"}
	if diff := cmp.Diff(want, objects[0].Object.Object["data"]); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if objects, known := p.Published("b", "", []string{"x"}); len(objects) > 0 || known {
		t.Errorf("a space for which an expression fails has %v, known %v; want that it keeps its copies", objects, known)
	}
	p.Forget("b")
	if err := p.store.Delete(y); err != nil {
		t.Fatal(err)
	}
	if err := p.store.Delete(x); err != nil {
		t.Fatal(err)
	}
	await(t, rendered, "a")
}

func await(t *testing.T, rendered <-chan string, want ...string) {
	t.Helper()
	var got []string
	for range want {
		select {
		case space := <-rendered:
			got = append(got, space)
		case <-time.After(10 * time.Second):
			t.Fatalf("rendered %q, want %q", got, want)
		}
	}
	if slices.Sort(got); !slices.Equal(got, want) || len(rendered) > 0 {
		t.Errorf("rendered %q and %d more, want %q", got, len(rendered), want)
	}
}

func space(name, tenant string, publications ...string) *v1alpha1.Space {
	return &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.SpaceSpec{TenantName: tenant, Publications: publications}}
}

func object(publication, version string) *v1alpha1.PublishedObject {
	return &v1alpha1.PublishedObject{
		ObjectMeta: metav1.ObjectMeta{Name: publication, ResourceVersion: version, Labels: map[string]string{v1alpha1.LabelPublication: publication}},
		Spec: v1alpha1.PublishedObjectSpec{
			Object: runtime.RawExtension{Raw: []byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"default","name":"c"}}`)},
			Fields: []v1alpha1.PublicationField{{Path: "data.text", Expression: `[tenant.name, tenant.labels.team, space.name, space.labels.tier].join(" ")`}},
		},
	}
}

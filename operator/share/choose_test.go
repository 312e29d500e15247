// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package share

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kruntime "k8s.io/apimachinery/pkg/runtime"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/sharing"
)

// M3, Q1: a process that was taken over fills the memory of the operator neither with the names and kinds of its objects, nor with
// objects that are too large, nor by their number.
func TestHostileSharedObjectsTakeLittleMemory(t *testing.T) {
	long := strings.Repeat("é", 450<<10)
	for what, object := range map[string]string{
		"names":       `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"web","name":"` + long + `"}}`,
		"namespaces":  `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"` + long + `","name":"a"}}`,
		"kinds":       `{"apiVersion":"v1","kind":"` + long + `","metadata":{"namespace":"web","name":"a"}}`,
		"versions":    `{"apiVersion":"` + long + `","kind":"ConfigMap","metadata":{"namespace":"web","name":"a"}}`,
		"types":       `{"apiVersion":"v1","kind":"Secret","type":"` + long + `","metadata":{"namespace":"web","name":"a"}}`,
		"subjects":    `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"RoleBinding","metadata":{"namespace":"web","name":"a"},"subjects":["` + long + `"]}`,
		"large":       `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"namespace":"web","name":"a"},"data":{"a":"` + long + long + `"}}`,
		"not objects": `"` + long + `"`,
	} {
		t.Run(what, func(t *testing.T) {
			choice := newChoice(sharing.Space{Name: "acme", Tenant: "acme", Profile: v1alpha1.SpaceAdmin})
			before, pages := heap(), 0
			for i := 0; i < sharing.MaxObjects && !choice.full(); i++ {
				choice.add(&v1alpha1.SharedObject{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("shared-%02x", i)},
					Spec:       v1alpha1.SharedObjectSpec{Scope: v1alpha1.ScopeChildren, Object: kruntime.RawExtension{Raw: []byte(object)}},
				})
				pages++
			}
			if grown := heap() - before; grown > maxReadBytes {
				t.Errorf("%d objects keep %d KiB", pages, grown>>10)
			}
			if pages > 10 {
				t.Errorf("%d objects are read", pages)
			}
			if choice.leftOut < len(choice.reasons) || len(choice.reasons) > maxNamed || choice.leftOut == 0 {
				t.Errorf("%d are left out, of which %d are named", choice.leftOut, len(choice.reasons))
			}
			for _, reason := range choice.reasons {
				if len(reason) > maxReasonBytes || !utf8.ValidString(reason) {
					t.Errorf("%d bytes: %q", len(reason), reason)
				}
			}
		})
	}
}

func heap() int {
	runtime.GC()
	runtime.GC() // pools, such as that of encoding/json, are emptied by the second one
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int(stats.HeapAlloc)
}

// Q1: the changes of a space whose reconciles take long wait longer, and those of no other space do.
func TestASpaceWaitsAsItsReconcilesTakeLong(t *testing.T) {
	p := newPace()
	delays := func(want time.Duration) {
		t.Helper()
		if got := p.delay("acme"); got != want {
			t.Errorf("it waits %s, want %s", got, want)
		}
		if got := p.delay("other"); got != settle {
			t.Errorf("another space waits %s", got)
		}
	}
	delays(settle)
	p.record("acme", time.Millisecond)
	delays(settle)
	p.record("acme", time.Second)
	delays(4 * time.Second)
	p.forget("acme")
	delays(settle)
	if len(p.last) > 0 {
		t.Errorf("a deleted space is remembered")
	}
}

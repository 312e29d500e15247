// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/berth-dev/berth/bounds"
)

// L3: patches that would take minutes, and gigabytes, are refused before they are applied, dry runs as well; the next one is
// applied.
func TestHostilePatchesAreRefusedBeforeTheyAreApplied(t *testing.T) {
	account, _, config := bounded(t, bounds.Limits{bounds.MemoryBytes: 128 << 20})
	maps := clientset(t, config).CoreV1().ConfigMaps("default")
	m := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "m"}, Data: map[string]string{"a": strings.Repeat("x", 1<<19)}}
	if _, err := maps.Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	list := strings.TrimSuffix(strings.Repeat("1,", 5000), ",")
	nested := func(levels int) string {
		return strings.Repeat(`{"a":`, levels) + `"` + strings.Repeat("x", 1<<19) + `"` + strings.Repeat("}", levels)
	}
	deep := nested(2000)
	operations := strings.TrimSuffix(strings.Repeat(`{"op":"add","path":"/data/l/0","value":1},`, 6000), ",")
	for name, c := range map[string]struct {
		kind  types.PatchType
		patch string
	}{
		"many insertions": {types.JSONPatchType, `[{"op":"add","path":"/data/l","value":[` + list + `]},` + operations + `]`},
		"a deep merge":    {types.MergePatchType, `{"data":{"b":` + deep + `}}`},
		"a deep path":     {types.JSONPatchType, `[{"op":"add","path":"/data/b","value":` + deep + `},{"op":"test","path":"/data/b` + strings.Repeat("/a", 2000) + `","value":1}]`},
		"a long list":     {types.StrategicMergePatchType, `{"metadata":{"finalizers":[` + strings.TrimSuffix(strings.Repeat(`"a",`, 9000), ",") + `]}}`},
	} {
		for _, dry := range [][]string{nil, {metav1.DryRunAll}} {
			ctx, leave := context.WithTimeout(t.Context(), time.Minute)
			_, err := maps.Patch(ctx, "m", c.kind, []byte(c.patch), metav1.PatchOptions{DryRun: dry})
			leave()
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "limit patch-steps") {
				t.Errorf("%s, dry run %v: %.300v", name, dry, err)
			}
		}
	}
	if _, err := maps.Patch(t.Context(), "m", types.JSONPatchType, []byte(`[{"op":"add","path":"/data/b","value":"c"}]`), metav1.PatchOptions{}); err != nil {
		t.Error(err)
	}
	// What a patch holds while it is applied is the request's.
	_, err := maps.Patch(t.Context(), "m", types.MergePatchType, []byte(`{"data":{"b":`+nested(40)+`}}`), metav1.PatchOptions{})
	if !apierrors.IsRequestEntityTooLargeError(err) || !strings.Contains(err.Error(), "memory-bytes") {
		t.Errorf("a patch with 40 levels: %.300v", err)
	}
	eventually(t, func() error {
		if held := account.Memory(); held != 0 {
			return fmt.Errorf("%d bytes are held", held)
		}
		return nil
	})
}

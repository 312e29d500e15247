// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package report_test

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/client/report"
)

// golden compares a report with a file of testdata, or writes the file.
func golden(t *testing.T, name, got string) {
	t.Helper()
	file := "testdata/" + name + ".txt"
	if os.Getenv("BERTH_UPDATE_GOLDEN") != "" {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s: set BERTH_UPDATE_GOLDEN=1 to write it: -want +got:\n%s", file, diff)
	}
}

func quantities(pairs ...string) map[corev1.ResourceName]resource.Quantity {
	all := map[corev1.ResourceName]resource.Quantity{}
	for i := 0; i < len(pairs); i += 2 {
		all[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return all
}

func tenant(name, parent string, change ...func(*v1alpha1.Tenant)) v1alpha1.Tenant {
	t := v1alpha1.Tenant{ObjectMeta: metav1.ObjectMeta{Name: name}}
	t.Spec.Parent, t.Status.State, t.Status.Summary.Spaces, t.Status.Size = parent, v1alpha1.TenantActive, "1/1", ptr.To[int32](0)
	for _, c := range change {
		c(&t)
	}
	return t
}

func private(t *v1alpha1.Tenant)  { t.Spec.Private = ptr.To(true) }
func unseen(t *v1alpha1.Tenant)   { t.Status = v1alpha1.TenantStatus{} }
func cordoned(t *v1alpha1.Tenant) { t.Status.State = v1alpha1.TenantCordoned }
func namespaces(size, quota int32) func(*v1alpha1.Tenant) {
	return func(t *v1alpha1.Tenant) { t.Status.Size, t.Spec.Namespaces.Quota = &size, &quota }
}
func usage(used, hard map[corev1.ResourceName]resource.Quantity) func(*v1alpha1.Tenant) {
	return func(t *v1alpha1.Tenant) {
		t.Status.Usage, t.Status.Subtree.Used = v1alpha1.TenantUsage{Used: used, Hard: hard}, used
	}
}

func sample() []v1alpha1.Tenant {
	return []v1alpha1.Tenant{
		tenant("zeta", "", cordoned),
		tenant("acme-prod", "acme", namespaces(10, 10), usage(quantities("limits.cpu", "8", "limits.memory", "17Gi"), quantities("limits.cpu", "8", "limits.memory", "16Gi"))),
		tenant("acme-dev-b", "acme-dev", unseen),
		tenant("acme", "", namespaces(3, 10), usage(quantities("limits.cpu", "500m", "limits.memory", "1Gi"), quantities("limits.cpu", "8", "limits.memory", "16Gi"))),
		tenant("acme-dev", "acme", private, usage(quantities("requests.cpu", "1", "requests.memory", "0"), quantities("requests.cpu", "2", "requests.memory", "4Gi"))),
		tenant("acme-dev-a", "acme-dev", usage(quantities("limits.cpu", "250m"), nil)),
		tenant("lost", "gone"),
	}
}

// H1, H3: the tree is drawn below each parent, with usage against limits, and private tenants are marked.
func TestTheTreeOfTenantsIsDrawn(t *testing.T) {
	for name, style := range map[string]report.Style{"tree": report.Unicode(), "tree-ascii": report.ASCII()} {
		var out strings.Builder
		if err := report.Tree(&out, sample(), style, false); err != nil {
			t.Fatal(err)
		}
		golden(t, name, out.String())
	}
}

// H1: each tenant is drawn exactly once, and no tenant before its parent, whatever the parents are.
func TestEachTenantIsDrawnOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := rapid.IntRange(0, 12).Draw(t, "tenants")
		var tenants []v1alpha1.Tenant
		for i := range n {
			parent := "" // may be itself, in a cycle, or missing
			if p := rapid.IntRange(-1, n).Draw(t, "parent"); p >= 0 {
				parent = fmt.Sprintf("t%02d", p)
			}
			tenants = append(tenants, tenant(fmt.Sprintf("t%02d", i), parent))
		}
		var out strings.Builder
		if err := report.Tree(&out, tenants, report.ASCII(), true); err != nil {
			t.Fatal(err)
		}
		for i := range n {
			if got := strings.Count(out.String(), fmt.Sprintf("t%02d ", i)); got != 1 {
				t.Fatalf("t%02d is drawn %d times:\n%s", i, got, out.String())
			}
		}
	})
}

func TestBarsRoundSoThatNothingAndAllAreExact(t *testing.T) {
	for want, used := range map[string]float64{
		"----------": 0, "#---------": 0.001, "##########": 10, "#########-": 9.999, "#####-----": 5,
	} {
		if got := report.ASCII().Bar(used, 10); got != want {
			t.Errorf("%v of 10 is drawn as %s, want %s", used, got, want)
		}
	}
	if got := report.ASCII().Bar(1, 0); got != "##########" {
		t.Errorf("what is over a limit of 0 is drawn as %s", got)
	}
	if got := report.ASCII().Bar(0, 0); got != "----------" {
		t.Errorf("nothing of a limit of 0 is drawn as %s", got)
	}
}

func TestTheStyleFollowsTheLocale(t *testing.T) {
	for name, tc := range map[string]struct {
		env  map[string]string
		want report.Style
	}{
		"UTF-8":               {map[string]string{"LANG": "en_US.UTF-8"}, report.Unicode()},
		"another spelling":    {map[string]string{"LC_CTYPE": "C.utf8"}, report.Unicode()},
		"LC_ALL takes effect": {map[string]string{"LC_ALL": "C", "LANG": "en_US.UTF-8"}, report.ASCII()},
		"none":                {nil, report.ASCII()},
	} {
		if got := report.StyleOf(func(key string) string { return tc.env[key] }); got != tc.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// T7: a description has the spec in short, the conditions, the usage, and the events.
func TestASpaceIsDescribed(t *testing.T) {
	now := time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	full := &v1alpha1.Space{
		ObjectMeta: metav1.ObjectMeta{Name: "acme", Labels: map[string]string{"berth.dev/tenant": "acme", "a": "b"}, CreationTimestamp: ago(3 * time.Hour)},
		Spec: v1alpha1.SpaceSpec{
			TenantName: "acme", PlatformName: "berth", Isolation: v1alpha1.Shared, DeletionPolicy: v1alpha1.DeletionDelete,
			Sleep: v1alpha1.Sleep{IdleAfterSeconds: ptr.To[int32](900)}, Snapshots: v1alpha1.Snapshots{To: "s3://bucket", IntervalSeconds: ptr.To[int32](3600), Keep: 7},
			Access: v1alpha1.Access{Cordoned: ptr.To(true), Owners: []v1alpha1.Owner{
				{Kind: v1alpha1.GroupKind, Name: "devs", ClusterRoles: []string{"view"}}, {Kind: v1alpha1.UserKind, Name: "alice", ClusterRoles: []string{"admin", "berth-namespace-deleter"}},
			}},
			Namespaces: v1alpha1.Namespaces{Quota: ptr.To[int32](10)}, Publications: []string{"baseline"},
		},
		Status: v1alpha1.SpaceStatus{
			State: v1alpha1.SpaceRunning, Isolation: v1alpha1.Dedicated, Endpoint: "https://berth.example/spaces/acme", Version: "v1.37.1",
			Namespaces: []string{"a", "b", "c", "d", "e", "f", "g"}, NamespaceCount: ptr.To[int32](7),
			Quota: v1alpha1.QuotaStatus{Hard: quantities("limits.cpu", "8", "pods", "100"), Used: quantities("limits.cpu", "500m", "pods", "0")},
			Conditions: []metav1.Condition{
				{Type: "Ready", Status: metav1.ConditionTrue, Reason: "Running", Message: "The space serves requests.", LastTransitionTime: ago(2 * time.Hour)},
				{Type: "Synced", Status: metav1.ConditionFalse, Reason: "Refused", Message: "one\ntwo\x1b[31m\tthree", LastTransitionTime: ago(time.Minute)},
			},
		},
	}
	events := []corev1.Event{
		{Type: "Warning", Reason: "Later", LastTimestamp: ago(time.Minute), Source: corev1.EventSource{Component: "berth"}, Message: "second"},
		{Type: "Normal", Reason: "Earlier", EventTime: metav1.NewMicroTime(now.Add(-time.Hour)), ReportingController: "berth.dev/platform", Message: "first"},
	}
	empty := &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: "new"}}
	for name, described := range map[string]report.Described{
		"space":       {Space: full, Events: events},
		"space-empty": {Space: empty, EventsError: errors.New(`events is forbidden`)},
	} {
		var out strings.Builder
		if err := report.Space(&out, described, report.Unicode(), now); err != nil {
			t.Fatal(err)
		}
		golden(t, name, out.String())
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/crds"
	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/translate"
)

func hostConfig(t *testing.T) *rest.Config {
	t.Helper()
	host, err := shared()
	if err != nil {
		t.Fatal(err)
	}
	config := rest.CopyConfig(host.Config())
	config.ContentConfig = rest.ContentConfig{} // JSON: custom resources have no protobuf
	return config
}

// hostClient returns a client of a host that serves the definitions.
func hostClient(t *testing.T) client.Client {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), apiextensionsv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	c, err := client.New(hostConfig(t), client.Options{Scheme: scheme})
	if err != nil {
		t.Fatal(err)
	}
	definitions, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	for _, definition := range definitions {
		if err := c.Create(t.Context(), definition); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
	}
	testhost.Eventually(t, "serve Berth's API", func(ctx context.Context) error {
		return errors.Join(c.List(ctx, &v1alpha1.SpaceList{}), c.List(ctx, &v1alpha1.TenantList{}), c.List(ctx, &v1alpha1.TenantOwnerList{}),
			c.List(ctx, &v1alpha1.BerthConfigurationList{}), c.List(ctx, &v1alpha1.PublicationList{}), c.List(ctx, &v1alpha1.PublishedObjectList{}))
	})
	return c
}

// remove deletes what a test stored.
func remove(t *testing.T, c client.Client, object client.Object) {
	t.Helper()
	// The context of a test is done when it cleans up.
	if err := c.Delete(context.WithoutCancel(t.Context()), object); err != nil {
		t.Error(err)
	}
}

// X6: a Space needs a name only. The API server sets what is each space's own. It leaves the rest, such as pod security,
// to the platform, whose configuration would otherwise have no effect on any Space.
func TestASpaceHasDefaults(t *testing.T) {
	c := hostClient(t)
	space := &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: "defaults"}}
	if err := c.Create(t.Context(), space); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { remove(t, c, space) })
	want := v1alpha1.SpaceSpec{PlatformName: v1alpha1.DefaultPlatformName, Isolation: v1alpha1.Shared, DeletionPolicy: v1alpha1.DeletionDelete}
	if diff := cmp.Diff(want, space.Spec); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	space.Spec.Snapshots = v1alpha1.Snapshots{To: "file:///backups"}
	if err := c.Update(t.Context(), space); err != nil {
		t.Fatal(err)
	}
	if s := space.Spec.Snapshots; s.IntervalSeconds != nil || s.Keep != 0 {
		t.Errorf("snapshots are %+v", s)
	}
	space.Spec.PlatformName = "other"
	if err := c.Update(t.Context(), space); err == nil || !strings.Contains(err.Error(), "a space stays with its platform") {
		t.Errorf("the platform of a space is changed: %v", err)
	}
}

// X6: what people read of the clients that are ignored by default is what the platform ignores.
func TestTheDefinitionNamesTheUserAgentsThatAreIgnored(t *testing.T) {
	definitions, err := crds.All()
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(definitions, func(d *apiextensionsv1.CustomResourceDefinition) bool { return d.Spec.Names.Kind == "Space" })
	schema := *definitions[i].Spec.Versions[0].Schema.OpenAPIV3Schema
	for _, name := range []string{"spec", "sleep", "ignoredClients", "userAgents"} {
		schema = schema.Properties[name]
	}
	for _, agent := range v1alpha1.DefaultIgnoredUserAgents() {
		if !strings.Contains(schema.Description, agent) {
			t.Errorf("%q does not name %s", schema.Description, agent)
		}
	}
}

// X3, X6: a value that means nothing is refused with its field and the remedy, and one that means something is stored.
func TestASpaceIsValidated(t *testing.T) {
	c := hostClient(t)
	quantity := resource.MustParse
	for name, tc := range map[string]struct {
		space string
		spec  v1alpha1.SpaceSpec
		says  []string // nil for a space that is valid
	}{
		"everything": {spec: v1alpha1.SpaceSpec{
			PlatformName: "other", Isolation: v1alpha1.Dedicated, Paused: ptr.To(true), DeletionPolicy: v1alpha1.DeletionSnapshot,
			Limits:      map[string]resource.Quantity{"store-bytes": quantity("1Gi"), "watches": quantity("10")},
			Sync:        []v1alpha1.SyncOption{{Resource: "ingresses", Value: "off"}},
			Quota:       map[corev1.ResourceName]resource.Quantity{"limits.cpu": quantity("8")},
			LimitRange:  []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Default: corev1.ResourceList{"cpu": quantity("100m")}}},
			PodSecurity: v1alpha1.PodSecurity{Level: "restricted", RuntimeClassName: "gvisor", UserNamespaces: "Required"},
			Nodes:       v1alpha1.Nodes{Selector: map[string]string{"pool": "a"}, AllowedLabels: []string{"example.com/disk"}},
			Network:     v1alpha1.Network{AllowedDomains: []string{"apps.example.com"}, ClosedRanges: []string{"203.0.113.0/24", "2001:db8::/32"}},
			Sleep: v1alpha1.Sleep{IdleAfterSeconds: ptr.To[int32](0), IgnoredClients: v1alpha1.Clients{
				UserAgents: []string{"argocd-"}, Users: []string{"prometheus"}, Groups: []string{"monitoring"},
			}},
			HostNamespace: v1alpha1.HostNamespace{Labels: map[string]string{"example.com/cost-center": "7"}, Annotations: map[string]string{"a": "b"}},
			Snapshots:     v1alpha1.Snapshots{To: "s3://bucket/prefix", IntervalSeconds: ptr.To[int32](60), Keep: 1},
		}},
		"longest name":     {space: strings.Repeat("n", 57)},
		"too long a name":  {space: strings.Repeat("n", 58), says: []string{"at most 57 characters"}},
		"dots in the name": {space: "a.b", says: []string{"must not contain dots"}},
		"reserved name":    {space: "system", says: []string{"reserved"}},
		"platform":         {spec: v1alpha1.SpaceSpec{PlatformName: "a.b"}, says: []string{"spec.platformName"}},
		"isolation":        {spec: v1alpha1.SpaceSpec{Isolation: "Own"}, says: []string{"spec.isolation", `"Shared", "Dedicated"`}},
		"deletion policy":  {spec: v1alpha1.SpaceSpec{DeletionPolicy: "Keep"}, says: []string{"spec.deletionPolicy", `"Retain"`}},
		"resource twice":   {spec: v1alpha1.SpaceSpec{Sync: []v1alpha1.SyncOption{{Resource: "pods", Value: "on"}, {Resource: "pods", Value: "on"}}}, says: []string{"spec.sync[1]", "Duplicate"}},
		"pod security":     {spec: v1alpha1.SpaceSpec{PodSecurity: v1alpha1.PodSecurity{Level: "privileged"}}, says: []string{"spec.podSecurity.level", `"restricted"`}},
		"names of nodes":   {spec: v1alpha1.SpaceSpec{Nodes: v1alpha1.Nodes{AllowedLabels: []string{corev1.LabelHostname}}}, says: []string{"spec.nodes.allowedLabels", "names of nodes"}},
		"domain pattern":   {spec: v1alpha1.SpaceSpec{Network: v1alpha1.Network{AllowedDomains: []string{"*.example.com"}}}, says: []string{"spec.network.allowedDomains[0]"}},
		"range":            {spec: v1alpha1.SpaceSpec{Network: v1alpha1.Network{ClosedRanges: []string{"203.0.113.1/24"}}}, says: []string{"spec.network.closedRanges", "203.0.113.0/24"}},
		"whole range":      {spec: v1alpha1.SpaceSpec{Network: v1alpha1.Network{ClosedRanges: []string{"0.0.0.0/0"}}}, says: []string{"spec.network.closedRanges"}},
		"no range":         {spec: v1alpha1.SpaceSpec{Network: v1alpha1.Network{ClosedRanges: []string{"example.com"}}}, says: []string{"spec.network.closedRanges"}},
		"time":             {spec: v1alpha1.SpaceSpec{Sleep: v1alpha1.Sleep{IdleAfterSeconds: ptr.To[int32](-1)}}, says: []string{"spec.sleep.idleAfterSeconds", "greater than or equal to 0"}},
		"label of Berth": {spec: v1alpha1.SpaceSpec{HostNamespace: v1alpha1.HostNamespace{Labels: map[string]string{"berth.dev/space": "other"}}},
			says: []string{"spec.hostNamespace.labels", "set by Berth"}},
		"label of Kubernetes": {spec: v1alpha1.SpaceSpec{HostNamespace: v1alpha1.HostNamespace{Labels: map[string]string{"pod-security.kubernetes.io/enforce": "privileged"}}},
			says: []string{"spec.hostNamespace.labels", "set by Berth"}},
		"annotation of Berth": {spec: v1alpha1.SpaceSpec{HostNamespace: v1alpha1.HostNamespace{Annotations: map[string]string{"berth.dev/store": "x"}}},
			says: []string{"spec.hostNamespace.annotations", "set by Berth"}},
		"frequent snapshots": {spec: v1alpha1.SpaceSpec{Snapshots: v1alpha1.Snapshots{To: "file:///b", IntervalSeconds: ptr.To[int32](59)}}, says: []string{"spec.snapshots.intervalSeconds", "60"}},
		"no snapshots":       {spec: v1alpha1.SpaceSpec{Snapshots: v1alpha1.Snapshots{IntervalSeconds: ptr.To[int32](0)}}},
		"replication":        {spec: v1alpha1.SpaceSpec{Snapshots: v1alpha1.Snapshots{Replication: v1alpha1.ReplicationContinuous}}},
		"other replication":  {spec: v1alpha1.SpaceSpec{Snapshots: v1alpha1.Snapshots{Replication: "Sometimes"}}, says: []string{"spec.snapshots.replication"}},
		"replicated server": {
			spec: v1alpha1.SpaceSpec{
				Store:     v1alpha1.Store{Type: v1alpha1.StorePostgreSQL, SecretName: "db"},
				Snapshots: v1alpha1.Snapshots{Replication: v1alpha1.ReplicationContinuous},
			},
			says: []string{"a store in a database server can't be replicated by the platform"},
		},
		"fewer snapshots":     {spec: v1alpha1.SpaceSpec{Snapshots: v1alpha1.Snapshots{Keep: 1}}},
		"snapshots by a path": {spec: v1alpha1.SpaceSpec{Snapshots: v1alpha1.Snapshots{To: "/backups"}}, says: []string{"spec.snapshots.to", "file:///"}},
		"credentials": {spec: v1alpha1.SpaceSpec{Snapshots: v1alpha1.Snapshots{To: "s3://key:secret@bucket/prefix"}},
			says: []string{"spec.snapshots.to", "must not hold credentials"}},
		"no credentials":   {spec: v1alpha1.SpaceSpec{Snapshots: v1alpha1.Snapshots{To: "s3://bucket/a@b"}}},
		"limit of nothing": {spec: v1alpha1.SpaceSpec{LimitRange: []corev1.LimitRangeItem{{Type: "Node"}}}, says: []string{"spec.limitRange", "PersistentVolumeClaim"}},
		"type twice":       {spec: v1alpha1.SpaceSpec{LimitRange: []corev1.LimitRangeItem{{Type: "Pod"}, {Type: "Pod"}}}, says: []string{"spec.limitRange[1]", "Duplicate"}},
		"labels like those of Kubernetes": {spec: v1alpha1.SpaceSpec{HostNamespace: v1alpha1.HostNamespace{
			Labels: map[string]string{"x-k8s.io/a": "b", "notberth.dev/a": "b"}, Annotations: map[string]string{"notberth.dev/a": "b"},
		}}},
		"label below Kubernetes": {spec: v1alpha1.SpaceSpec{HostNamespace: v1alpha1.HostNamespace{Labels: map[string]string{"a.b.k8s.io/c": "d"}}},
			says: []string{"spec.hostNamespace.labels", "set by Berth"}},
		"annotation below Berth": {spec: v1alpha1.SpaceSpec{HostNamespace: v1alpha1.HostNamespace{Annotations: map[string]string{"a.berth.dev/c": "d"}}},
			says: []string{"spec.hostNamespace.annotations", "set by Berth"}},
		"annotation of Kubernetes": {spec: v1alpha1.SpaceSpec{HostNamespace: v1alpha1.HostNamespace{Annotations: map[string]string{"scheduler.alpha.kubernetes.io/node-selector": "a=b"}}},
			says: []string{"spec.hostNamespace.annotations", "set by Berth and by Kubernetes"}},
	} {
		t.Run(name, func(t *testing.T) {
			space := &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: tc.space}, Spec: tc.spec}
			if tc.space == "" {
				space.Name = "valid"
			}
			err := c.Create(t.Context(), space, client.DryRunAll)
			if (err == nil) != (tc.says == nil) {
				t.Fatalf("got %v, want an error: %v", err, tc.says != nil)
			}
			for _, part := range tc.says {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%v does not say %q", err, part)
				}
			}
		})
	}
}

// X3: the API server takes the names that the platform takes, and no others.
func TestTheDefinitionAgreesOnNamesWithThePlatform(t *testing.T) {
	c := hostClient(t)
	for _, name := range []string{
		"a", "7", "a-b", "team-a-1", strings.Repeat("n", translate.MaxSpaceName), strings.Repeat("n", translate.MaxSpaceName+1),
		"system", "host", "hosts", "kube-system", "-a", "a-", "A", "a.b", "a_b", "é",
	} {
		err := c.Create(t.Context(), &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: name}}, client.DryRunAll)
		if want := isolation.CheckSpaceName(name); (err == nil) != (want == nil) {
			t.Errorf("%q: the API server says %v, the platform %v", name, err, want)
		}
	}
}

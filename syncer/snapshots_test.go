// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// extended is a client that knows extensions and definitions, too.
func extended(t *testing.T, config *rest.Config) client.Client {
	t.Helper()
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme, snapshotv1.AddToScheme, gatewayv1.Install} {
		if err := add(s); err != nil {
			t.Fatal(err)
		}
	}
	config = rest.CopyConfig(config)
	config.ContentType, config.AcceptContentTypes = "", ""
	c, err := client.New(config, client.Options{Scheme: s})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// define installs the definitions of snapshots as upstream publishes them.
func define(t *testing.T, c client.Client) {
	t.Helper()
	defineFrom(t, c, "github.com/kubernetes-csi/external-snapshotter/client/v8", "config/crd/snapshot.storage.k8s.io_", nil, "volumesnapshots", "volumesnapshotclasses")
}

// defineFrom installs the definitions that a module holds in files of this prefix,
// with what a newer release has in the specs.
func defineFrom(t *testing.T, c client.Client, module, prefix string, newer map[string]apiextensionsv1.JSONSchemaProps, plurals ...string) {
	t.Helper()
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-m", "-f", "{{.Dir}}", module).Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, plural := range plurals {
		text, err := os.ReadFile(filepath.Join(strings.TrimSpace(string(dir)), prefix+plural+".yaml"))
		if err != nil {
			t.Fatal(err)
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(text, crd); err != nil {
			t.Fatal(err)
		}
		for i := range crd.Spec.Versions {
			maps.Copy(crd.Spec.Versions[i].Schema.OpenAPIV3Schema.Properties["spec"].Properties, newer)
		}
		if err := c.Create(t.Context(), crd); err != nil && !apierrors.IsAlreadyExists(err) {
			t.Fatal(err)
		}
		testhost.Eventually(t, "serve "+plural, func(ctx context.Context) error { return established(ctx, c, crd) })
	}
}

func snapshotOf(name, claim, class string) *snapshotv1.VolumeSnapshot {
	return &snapshotv1.VolumeSnapshot{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: snapshotv1.VolumeSnapshotSpec{
		Source: snapshotv1.VolumeSnapshotSource{PersistentVolumeClaimName: &claim}, VolumeSnapshotClassName: &class,
	}}
}

// S1, S2, M4, N1: where the admin enables them, a tenant takes snapshots of its
// claims, by imported classes, and makes claims of them. It sees nothing
// of the host's, and can name nothing of it.
func TestSnapshotsAreTakenByTheHost(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	host := extended(t, theHost(t).Config())
	define(t, host)
	for name, labels := range map[string]map[string]string{"snap-imported": importLabel(), "snap-hidden": nil} {
		class := &snapshotv1.VolumeSnapshotClass{
			ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}, Driver: "csi.host.example", DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
			Parameters: map[string]string{"csi.storage.k8s.io/snapshotter-secret-name": "of-the-host"},
		}
		testhost.Eventually(t, "make a class", func(ctx context.Context) error { return host.Create(ctx, class) }) // discovery lags
		t.Cleanup(func() { _ = host.Delete(context.Background(), class) })
	}
	env := synced(t, "snap", "volumesnapshots=on", "volumesnapshotclasses="+resources.ImportSelector)
	space := extended(t, env.toPlane())

	class := &snapshotv1.VolumeSnapshotClass{}
	testhost.Eventually(t, "see the class", func(ctx context.Context) error { return space.Get(ctx, client.ObjectKey{Name: "snap-imported"}, class) })
	if class.Driver != translate.VolumeDriver || len(class.Parameters) > 0 {
		t.Errorf("the class tells of the host's: %v", class)
	}
	must(t, env.virtual.CoreV1().PersistentVolumeClaims("default").Create, newClaim("data"))
	v := snapshotOf("nightly", "data", "snap-imported")
	Served(t, space, v)
	h := &snapshotv1.VolumeSnapshot{}
	testhost.Eventually(t, "see it on the host", func(ctx context.Context) error {
		return host.Get(ctx, client.ObjectKey{Namespace: env.space.HostNamespace(), Name: env.hostName("nightly")}, h)
	})
	if ptr.Deref(h.Spec.Source.PersistentVolumeClaimName, "") != env.hostName("data") || ptr.Deref(h.Spec.VolumeSnapshotClassName, "") != "snap-imported" {
		t.Errorf("it is of %v, class %v", h.Spec.Source, h.Spec.VolumeSnapshotClassName)
	}
	// The embedded host has no controller of snapshots: what one would report.
	h.Status = &snapshotv1.VolumeSnapshotStatus{
		BoundVolumeSnapshotContentName: ptr.To("content-of-the-host"), ReadyToUse: ptr.To(true), RestoreSize: ptr.To(resource.MustParse("1Gi")),
		Error: &snapshotv1.VolumeSnapshotError{Message: ptr.To("volume vol-of-the-host at 10.1.2.3 was busy")},
	}
	if err := host.Status().Update(ctx, h); err != nil {
		t.Fatal(err)
	}
	testhost.Eventually(t, "hear that it is ready", func(ctx context.Context) error {
		if err := space.Get(ctx, client.ObjectKeyFromObject(v), v); err != nil {
			return err
		}
		if v.Status == nil || !ptr.Deref(v.Status.ReadyToUse, false) || v.Status.RestoreSize.String() != "1Gi" {
			return fmt.Errorf("its status is %v", v.Status)
		}
		return nil
	})
	if said := fmt.Sprint(*v.Status.BoundVolumeSnapshotContentName, *v.Status.Error.Message); strings.Contains(said, "of-the-host") || strings.Contains(said, "10.1.2.3") {
		t.Errorf("the space is told %q", said)
	}

	copied := newClaim("copy")
	copied.Spec.DataSource = &corev1.TypedLocalObjectReference{APIGroup: ptr.To(snapshotv1.GroupName), Kind: "VolumeSnapshot", Name: "nightly"}
	must(t, env.virtual.CoreV1().PersistentVolumeClaims("default").Create, copied)
	awaited(t, "see a claim made of it", env.host.CoreV1().PersistentVolumeClaims(env.space.HostNamespace()).Get, env.hostName("copy"), func(c *corev1.PersistentVolumeClaim) error {
		if ref := c.Spec.DataSourceRef; ref == nil || ref.Kind != "VolumeSnapshot" || ref.Name != env.hostName("nightly") || ref.Namespace != nil {
			return fmt.Errorf("it is made of %v", ref)
		}
		return nil
	})

	stolen := snapshotOf("stolen", "", "snap-imported")
	stolen.Spec.Source = snapshotv1.VolumeSnapshotSource{VolumeSnapshotContentName: ptr.To("content-of-another-space")}
	for name, attack := range map[string]struct {
		snapshot *snapshotv1.VolumeSnapshot
		says     string
	}{
		"stolen": {stolen, "spec.source.volumeSnapshotContentName"},
		"hidden": {snapshotOf("hidden", "data", "snap-hidden"), "spec.volumeSnapshotClassName"},
	} {
		if err := space.Create(ctx, attack.snapshot); err != nil {
			t.Fatal(err)
		}
		env.awaitWarning(t, "VolumeSnapshot", name, attack.says)
		if err := host.Get(ctx, client.ObjectKey{Namespace: env.space.HostNamespace(), Name: env.hostName(name)}, h); !apierrors.IsNotFound(err) {
			t.Errorf("%s: on the host there is %v (%v)", name, h.Spec, err)
		}
	}
	posing := rest.CopyConfig(env.cluster.Config())
	posing.Impersonate = rest.ImpersonationConfig{UserName: "system:serviceaccount:" + env.space.HostNamespace() + ":berth-syncer"}
	stolen = stolen.DeepCopy()
	stolen.ObjectMeta = metav1.ObjectMeta{Namespace: env.space.HostNamespace(), Name: env.hostName("stolen"), Labels: map[string]string{translate.LabelSpace: env.space.Name}}
	if err := refusedBy("berth-space-accounts", extended(t, posing).Create(ctx, stolen)); err != nil {
		t.Errorf("the space's account takes a content of another's: %v", err)
	}

	if err := space.Delete(ctx, v); err != nil {
		t.Fatal(err)
	}
	testhost.Eventually(t, "see it gone", func(ctx context.Context) error {
		return gone(h, host.Get(ctx, client.ObjectKey{Namespace: env.space.HostNamespace(), Name: env.hostName("nightly")}, h))
	})
}

// A syncer that can't go on says so at once, also when it runs informers of
// extensions: a space whose syncer hung would take in pods that never run.
func TestASyncerThatCannotGoOnReturns(t *testing.T) {
	t.Parallel()
	define(t, extended(t, theHost(t).Config()))
	env := synced(t, "snap-twice", "volumesnapshots=on")
	testhost.Eventually(t, "have the first at rest", func(context.Context) error {
		if !env.run.syncer.Idle() {
			return errors.New("it is at work")
		}
		return nil
	})
	factory := informers.NewSharedInformerFactory(env.virtual, 0)
	second, err := syncer.New(syncer.Config{Space: env.space, Host: env.run.host, Virtual: env.toPlane(), Informers: factory, Logger: klog.Background()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- second.Run(ctx) }()
	select {
	case err = <-ended:
	case <-time.After(testhost.Timeout):
		t.Error("it goes on, and does nothing")
	}
	cancel()
	factory.Shutdown()
	if err == nil || !strings.Contains(err.Error(), "synced twice") {
		t.Errorf("it returned %v", err)
	}
}

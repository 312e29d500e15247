// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	snapshotv1 "github.com/kubernetes-csi/external-snapshotter/client/v8/apis/volumesnapshot/v1"
	"go.etcd.io/etcd/client/v3/kubernetes"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/definitions"
	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
)

// serveSynced restarts the control plane with the definitions of what is synced, as a shard does at a start.
func (env *testEnv) serveSynced(t *testing.T) {
	t.Helper()
	var source *definitions.Source
	env.restart(t, func() { env.config.Definitions = source.WithSynced(env.syncedDefinitions(t)...) })
}

// restart starts the control plane again, after change.
func (env *testEnv) restart(t *testing.T, change func()) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testhost.Timeout)
	defer cancel()
	if err := env.stopPlane(ctx); err != nil {
		t.Fatal(err)
	}
	change()
	if err := env.startPlane(ctx); err != nil {
		t.Fatal(err)
	}
}

// syncedDefinitions are forced on the space.
func (env *testEnv) syncedDefinitions(t *testing.T) []*definitions.Shared {
	t.Helper()
	host, err := syncer.NewHost(env.cluster.Config(), env.options)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testhost.Timeout)
	defer cancel()
	if err := host.Start(ctx); err != nil {
		t.Fatal(err)
	}
	defer host.Stop()
	return host.SyncedDefinitions(ptr.Deref(env.sync, env.options.Sync))
}

// syncsExtensions reports whether the space has kinds that are synced, and defined by the host.
func (env *testEnv) syncsExtensions() bool {
	for _, r := range resources.Table() {
		if r.Extension && ptr.Deref(env.sync, env.options.Sync).On(r.Name) {
			return true
		}
	}
	return false
}

// snapshotEnv is a space whose syncer is to sync snapshots, and has not begun. Its control plane has no definitions of
// them.
func snapshotEnv(t *testing.T, name string) (env *testEnv, host, space client.Client) {
	t.Helper()
	host = extended(t, theHost(t).Config())
	define(t, host)
	class := &snapshotv1.VolumeSnapshotClass{
		ObjectMeta: metav1.ObjectMeta{Name: name + "-imported", Labels: importLabel()}, Driver: "csi.host.example", DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete,
	}
	testhost.Eventually(t, "make a class", func(ctx context.Context) error { return host.Create(ctx, class) }) // discovery lags
	t.Cleanup(func() { _ = host.Delete(context.Background(), class) })
	env = newEnv(t, name)
	syncOptions, err := resources.Parse([]string{"volumesnapshots=on", "volumesnapshotclasses=" + resources.ImportSelector})
	if err != nil {
		t.Fatal(err)
	}
	env.options.Sync = syncOptions
	env.build(t)
	return env, host, extended(t, env.toPlane())
}

func snapshotDefinition(plural string) *apiextensionsv1.CustomResourceDefinition {
	return &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: plural + "." + snapshotv1.GroupName}}
}

// ownDefinition is a tenant's definition in the group of snapshots.
func ownDefinition(plural, kind string, scope apiextensionsv1.ResourceScope) *apiextensionsv1.CustomResourceDefinition {
	crd := snapshotDefinition(plural)
	crd.Annotations = map[string]string{apiextensionsv1.KubeAPIApprovedAnnotation: "unapproved, by the tenant"}
	crd.Spec = apiextensionsv1.CustomResourceDefinitionSpec{
		Group: snapshotv1.GroupName, Scope: scope,
		Names: apiextensionsv1.CustomResourceDefinitionNames{Plural: plural, Singular: strings.ToLower(kind), Kind: kind, ListKind: kind + "List"},
		Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{
			Name: "v1", Served: true, Storage: true,
			Schema: &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: &apiextensionsv1.JSONSchemaProps{Type: "object", XPreserveUnknownFields: ptr.To(true)}},
		}},
	}
	return crd
}

func established(ctx context.Context, c client.Client, crd *apiextensionsv1.CustomResourceDefinition) error {
	if err := c.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
		return err
	}
	for _, condition := range crd.Status.Conditions {
		if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
			return nil
		}
	}
	return errors.New("it is not established")
}

// C3, C5: a tenant's own definition of a synced kind is kept, and hidden with its objects while the kind is synced.
// Nobody can create, change, or delete one of that name then. One of another name that has the kind stays as it is.
func TestATenantsOwnDefinitionOfSnapshotsIsHidden(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	env, _, space := snapshotEnv(t, "snap-own")
	classes, others := ownDefinition("volumesnapshotclasses", "VolumeSnapshotClass", apiextensionsv1.ClusterScoped), ownDefinition("others", "VolumeSnapshot", apiextensionsv1.NamespaceScoped)
	for _, own := range []*apiextensionsv1.CustomResourceDefinition{classes, others} {
		testhost.Eventually(t, "make a definition", func(ctx context.Context) error { return space.Create(ctx, own) })
		testhost.Eventually(t, "have it served", func(ctx context.Context) error { return established(ctx, space, own) })
	}
	mine := &snapshotv1.VolumeSnapshotClass{ObjectMeta: metav1.ObjectMeta{Name: "mine"}, Driver: "csi.tenant.example", DeletionPolicy: snapshotv1.VolumeSnapshotContentDelete}
	Served(t, space, mine)

	env.serveSynced(t)
	run := env.begin(nil)
	class := &snapshotv1.VolumeSnapshotClass{}
	testhost.Eventually(t, "see the host's class", func(ctx context.Context) error {
		return space.Get(ctx, client.ObjectKey{Name: "snap-own-imported"}, class)
	})
	if err := space.Get(ctx, client.ObjectKeyFromObject(mine), class); !apierrors.IsNotFound(err) {
		t.Errorf("the platform's definition serves the tenant's class: %v", err)
	}
	const says = "because it syncs these objects with the host"
	inForce := snapshotDefinition("volumesnapshotclasses")
	if err := established(ctx, space, inForce); err != nil || !definitions.IsShared(inForce) {
		t.Errorf("the definition in force is %v (%v)", inForce.ObjectMeta, err)
	}
	changed := inForce.DeepCopy()
	changed.Spec.Versions[0].Schema.OpenAPIV3Schema.Description = "by the tenant"
	for what, err := range map[string]error{
		"create":         space.Create(ctx, ownDefinition("volumesnapshotclasses", "VolumeSnapshotClass", apiextensionsv1.ClusterScoped)),
		"create another": space.Create(ctx, ownDefinition("volumesnapshots", "VolumeSnapshot", apiextensionsv1.NamespaceScoped)),
		"update":         space.Update(ctx, changed),
		"patch":          space.Patch(ctx, inForce.DeepCopy(), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"a":"b"}}}`))),
		"delete":         space.Delete(ctx, inForce.DeepCopy()),
	} {
		if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want that it is forbidden, %s", what, err, says)
		}
	}
	testhost.Eventually(t, "have nothing to do", func(context.Context) error {
		if !run.syncer.Idle() {
			return errors.New("the syncer is busy")
		}
		return nil
	})
	if err := env.kill(); err != nil {
		t.Fatal(err)
	}

	env.restart(t, func() { env.config.Definitions = nil }) // the sync is off
	for _, own := range []*apiextensionsv1.CustomResourceDefinition{classes, others} {
		have := &apiextensionsv1.CustomResourceDefinition{}
		if err := space.Get(ctx, client.ObjectKeyFromObject(own), have); err != nil || have.UID != own.UID || have.Generation != own.Generation {
			t.Errorf("the definition %s isn't the tenant's any more: %v", own.Name, err)
		}
	}
	var all snapshotv1.VolumeSnapshotClassList
	if err := space.List(ctx, &all); err != nil || len(all.Items) != 1 || all.Items[0].UID != mine.UID || all.Items[0].ResourceVersion != mine.ResourceVersion {
		t.Errorf("of the tenant's kind there are %v (%v)", all.Items, err)
	}
}

// copyDefinitions creates the definitions of what is synced as earlier versions of Berth did.
func (env *testEnv) copyDefinitions(t *testing.T, space client.Client) {
	t.Helper()
	for _, shared := range env.syncedDefinitions(t) {
		crd := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{
			Name: shared.CRD.Name, Labels: map[string]string{translate.LabelManagedBy: translate.ManagedBy}, Annotations: shared.CRD.Annotations,
		}, Spec: *shared.CRD.Spec.DeepCopy()}
		crd.Spec.Versions = crd.Spec.Versions[:1] // without those that are not served
		testhost.Eventually(t, "copy a definition", func(ctx context.Context) error { return client.IgnoreAlreadyExists(space.Create(ctx, crd)) })
		testhost.Eventually(t, "have it served", func(ctx context.Context) error { return established(ctx, space, crd) })
	}
}

// inStore calls f with the store of the space, whose control plane must not run.
func (env *testEnv) inStore(t *testing.T, f func(store *kubernetes.Client) error) {
	t.Helper()
	store, err := kine.Open(t.Context(), kine.Options{Path: filepath.Join(env.config.Dir, "store.db"), Name: env.space.Name})
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f(store.Client()), store.Close()); err != nil {
		t.Fatal(err)
	}
}

// C5, T2: a space that has copies of the host's definitions, of an earlier version of Berth, has their objects when
// these are shared. So it does if that ended halfway. Nothing changes on the host.
func TestObjectsOfACopiedDefinitionAreMoved(t *testing.T) {
	t.Parallel()
	const (
		own    = "/registry/snapshot.storage.k8s.io/"
		shared = "/registry/shared.definitions.berth.dev/snapshot.storage.k8s.io/"
		copies = "/registry/apiextensions.k8s.io/customresourcedefinitions/"
	)
	for name, before := range map[string]func(ctx context.Context, store *kubernetes.Client) error{
		"at-once": func(context.Context, *kubernetes.Client) error { return nil },
		"halfway": func(ctx context.Context, store *kubernetes.Client) error { // some moved, one put and not deleted
			for at, deleted := range map[string]bool{"volumesnapshots/default/early": true, "volumesnapshots/default/nightly": false} {
				had, err := store.Kubernetes.Get(ctx, own+at, kubernetes.GetOptions{})
				if err != nil || had.KV == nil {
					return fmt.Errorf("read %s: %v, %w", at, had.KV, err)
				}
				if _, err := store.Kubernetes.OptimisticPut(ctx, shared+at, had.KV.Value, 0, kubernetes.PutOptions{}); err != nil {
					return err
				}
				if deleted {
					if _, err := store.Kubernetes.OptimisticDelete(ctx, own+at, had.KV.ModRevision, kubernetes.DeleteOptions{GetOnFailure: true}); err != nil {
						return err
					}
				}
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ctx, space := t.Context(), "snap-up-"+name
			env, host, virtual := snapshotEnv(t, space)
			env.copyDefinitions(t, virtual)
			env.begin(nil)
			class := &snapshotv1.VolumeSnapshotClass{}
			testhost.Eventually(t, "see the class", func(ctx context.Context) error {
				return virtual.Get(ctx, client.ObjectKey{Name: space + "-imported"}, class)
			})
			onHost := func(name string) *snapshotv1.VolumeSnapshot {
				t.Helper()
				h := &snapshotv1.VolumeSnapshot{}
				testhost.Eventually(t, "see it on the host", func(ctx context.Context) error {
					return host.Get(ctx, client.ObjectKey{Namespace: env.space.HostNamespace(), Name: env.hostName(name)}, h)
				})
				return h
			}
			must(t, env.virtual.CoreV1().PersistentVolumeClaims("default").Create, newClaim("data"))
			early, nightly := snapshotOf("early", "data", class.Name), snapshotOf("nightly", "data", class.Name)
			Served(t, virtual, early)
			Served(t, virtual, nightly)
			hosts := []*snapshotv1.VolumeSnapshot{onHost("early"), onHost("nightly")}
			env.idle(t)
			if err := env.kill(); err != nil {
				t.Fatal(err)
			}

			var source *definitions.Source
			forced := source.WithSynced(env.syncedDefinitions(t)...)
			env.restart(t, func() {
				env.inStore(t, func(store *kubernetes.Client) error { return before(ctx, store) })
				env.config.Definitions = forced
			})
			env.begin(nil)
			env.idle(t)
			for _, was := range []client.Object{early, nightly, class} {
				is, _ := was.DeepCopyObject().(client.Object)
				if err := virtual.Get(ctx, client.ObjectKeyFromObject(was), is); err != nil || is.GetUID() != was.GetUID() {
					t.Errorf("%s is another object: UID %s, was %s (%v)", was.GetName(), is.GetUID(), was.GetUID(), err)
				}
			}
			for i, name := range []string{"early", "nightly"} {
				if h := onHost(name); h.UID != hosts[i].UID || h.DeletionTimestamp != nil {
					t.Errorf("%s on the host has the UID %s, was %s; deleted at %v", name, h.UID, hosts[i].UID, h.DeletionTimestamp)
				}
			}
			later := snapshotOf("later", "data", class.Name)
			if err := virtual.Create(ctx, later); err != nil {
				t.Fatal(err)
			}
			onHost("later")
			for _, plural := range []string{"volumesnapshots", "volumesnapshotclasses"} {
				if crd := snapshotDefinition(plural); virtual.Get(ctx, client.ObjectKeyFromObject(crd), crd) != nil || !definitions.IsShared(crd) {
					t.Errorf("%s is not the platform's", crd.Name)
				}
			}
			env.restart(t, func() {
				env.inStore(t, func(store *kubernetes.Client) error {
					for _, prefix := range []string{own, copies} {
						left, err := store.Kubernetes.List(ctx, prefix, kubernetes.ListOptions{})
						if err != nil {
							return err
						}
						for _, kv := range left.Kvs {
							t.Errorf("the store still has %s", kv.Key)
						}
					}
					return nil
				})
			})
		})
	}
}

// C5: objects of a synced kind are hidden while the sync is off, and are there again afterwards.
func TestObjectsOfASyncedKindComeBackWithItsDefinition(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	env, _, space := snapshotEnv(t, "snap-off")
	env.serveSynced(t)
	v := snapshotOf("nightly", "data", "none")
	Served(t, space, v)
	forced := env.config.Definitions
	env.restart(t, func() { env.config.Definitions = nil })
	if err := space.Get(ctx, client.ObjectKeyFromObject(v), &snapshotv1.VolumeSnapshot{}); !apierrors.IsNotFound(err) {
		t.Errorf("without a definition, the space has %v", err)
	}
	env.restart(t, func() { env.config.Definitions = forced })
	is := &snapshotv1.VolumeSnapshot{}
	if err := space.Get(ctx, client.ObjectKeyFromObject(v), is); err != nil || is.UID != v.UID || is.ResourceVersion != v.ResourceVersion {
		t.Errorf("it came back as %v (%v)", is.ObjectMeta, err)
	}
}

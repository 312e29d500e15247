// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/syncer"
	"github.com/berth-dev/berth/syncer/declaration"
	"github.com/berth-dev/berth/syncer/resources"
)

const (
	crashSlots = 3                    // objects of a kind in a namespace
	crashLane  = "crash.example/lane" // label of the host's classes that one space sees
	crashKeep  = "keep"               // a class of each kind that stays
)

// crashWalk is a random walk through the objects of one space and, for what comes from the host, of its admin.
type crashWalk struct {
	*testEnv
	rows          []crashRow
	random        *rand.Rand
	onHost        client.Client
	inSpace       client.Client
	sent, offered *declaration.Declaration // of the space to the host, and of the host to the space
	returning     *declaration.Declaration // of the space to the host, with Secrets that return
	used          bool                     // config maps and secrets are synced only where a pod refers to them
	namespaces    []string
	generations   int
	revision      int
	// made is what the tenant and the admin have made and not deleted: where it is, and what it has to say.
	made map[crashObject]crashState
}

type crashObject struct{ row, namespace, name string }

type crashState struct {
	uid  types.UID
	fact string
}

// newCrashWalk makes a space for which all resources are enabled, and three are declared.
func newCrashWalk(t *testing.T, lane string, seed uint64) *crashWalk {
	t.Helper()
	w := &crashWalk{
		testEnv: newEnv(t, lane), rows: crashRows(), random: rand.New(rand.NewPCG(seed, 10)), used: seed%2 == 1, namespaces: []string{"default"}, made: map[crashObject]crashState{},
	}
	selector := crashLane + "=" + lane
	syncOptions := append(exported(), "nodes=standins")
	for _, k := range resources.Table() {
		switch {
		case k.Name == resources.ConfigMaps || k.Name == resources.Secrets:
			syncOptions = append(syncOptions, k.Name+"="+map[bool]string{true: resources.Used, false: resources.All}[w.used])
		case strings.HasSuffix(k.Name, "classes") && k.Direction == resources.FromHost:
			syncOptions = append(syncOptions, k.Name+"="+selector)
		case k.Default() == resources.Off && k.Direction == resources.ToHost && !strings.HasPrefix(k.Name, "own"):
			syncOptions = append(syncOptions, k.Name+"="+resources.On)
		}
	}
	parsed, err := resources.Parse(syncOptions)
	if err != nil {
		t.Fatal(err)
	}
	w.options = syncer.Options{Sync: parsed}
	w.onHost = extended(t, w.cluster.Config())
	define(t, w.onHost)
	defineGateways(t, w.onHost)
	if err := isolation.InstallPolicies(t.Context(), w.onHost, parsed); err != nil {
		t.Fatal(err)
	}
	w.counts("crash", 1000)
	w.serveSynced(t)
	w.inSpace = extended(t, w.toPlane())
	w.declareTickets()
	if err := isolation.Apply(t.Context(), w.onHost, w.space, w.hardQuota, isolation.Syncing(parsed), isolation.AlsoSyncing(isolation.SyncRule(w.sent)), isolation.AlsoSyncing(isolation.SyncRule(w.returning))); err != nil {
		t.Fatal(err)
	}
	for i := range w.rows {
		if row := &w.rows[i]; row.from {
			w.create(t.Context(), row, crashObject{row.name, "", crashKeep})
		}
	}
	t.Cleanup(func() {
		for at := range w.made {
			if row := w.row(at.row); row.from {
				_ = w.delete(context.Background(), row, at)
			}
		}
	})
	return w
}

// class is the name of the classes of all kinds that stay.
func (w *crashWalk) class() string { return w.space.Name + "-" + crashKeep }

// hostname is a host name that no other walk claims.
func (w *crashWalk) hostname(name string) string { return name + "." + w.space.Name + ".example" }

func (w *crashWalk) row(name string) *crashRow {
	for i := range w.rows {
		if w.rows[i].name == name {
			return &w.rows[i]
		}
	}
	w.t.Fatalf("no row %s", name)
	return nil
}

// client is the API in which objects of a row are made.
func (w *crashWalk) client(row *crashRow) client.Client {
	if row.from {
		return w.onHost
	}
	return w.inSpace
}

// fresh is an object of a row as it is to be made, or as which it is to be read.
func (w *crashWalk) fresh(row *crashRow, at crashObject) client.Object {
	o := row.make(w, at.name)
	o.SetNamespace(at.namespace)
	o.SetName(at.name)
	switch {
	case row.from:
		o.SetName(w.space.Name + "-" + at.name) // the host has the classes of all walks
		o.SetLabels(map[string]string{crashLane: w.space.Name})
		if class, ok := o.(*storagev1.StorageClass); ok {
			class.VolumeBindingMode = ptr.To(storagev1.VolumeBindingImmediate)
		}
	case row.cluster:
		o.SetName("own-" + at.name)
	}
	return o
}

// step does a random thing to a random object. What the API refuses, because the last object of the name is not gone yet
// or because its namespace is, is not done.
func (w *crashWalk) step(ctx context.Context) {
	row := &w.rows[w.random.IntN(len(w.rows))]
	at := crashObject{row.name, "", crashName(w.random.IntN(crashSlots))}
	if !row.cluster {
		at.namespace = w.namespaces[w.random.IntN(len(w.namespaces))]
	}
	_, exists := w.made[at]
	switch action := w.random.IntN(4); {
	case !exists:
		w.create(ctx, row, at)
	case action == 0:
		w.check(w.delete(ctx, row, at))
	case action == 1:
		w.check(w.delete(ctx, row, at))
		w.create(ctx, row, at)
	case row.set != nil:
		w.update(ctx, row, at)
	}
}

func (w *crashWalk) create(ctx context.Context, row *crashRow, at crashObject) {
	o := w.fresh(row, at)
	w.revise(row, o)
	err := w.client(row).Create(ctx, o)
	for tries := 0; apierrors.IsConflict(err) && tries < 20; tries++ { // over the quota
		o.SetResourceVersion("")
		err = w.client(row).Create(ctx, o)
	}
	if err == nil {
		w.made[at] = crashState{o.GetUID(), row.fact(o)}
	}
	w.check(err)
}

func (w *crashWalk) update(ctx context.Context, row *crashRow, at crashObject) {
	for range 20 {
		o := w.fresh(row, at)
		err := w.client(row).Get(ctx, client.ObjectKeyFromObject(o), o)
		if err == nil {
			w.revise(row, o)
			err = w.client(row).Update(ctx, o)
		}
		if apierrors.IsConflict(err) {
			continue
		}
		if err == nil {
			w.made[at] = crashState{o.GetUID(), row.fact(o)}
		}
		w.check(err)
		return
	}
}

func (w *crashWalk) revise(row *crashRow, o client.Object) {
	if w.revision++; row.set != nil {
		labels := o.GetLabels()
		row.set(w, o, w.revision)
		if row.from {
			o.SetLabels(labels)
		}
	}
}

func (w *crashWalk) delete(ctx context.Context, row *crashRow, at crashObject) error {
	o := w.fresh(row, at)
	delete(w.made, at)
	opts := []client.DeleteOption{}
	if row.name == resources.Pods && w.random.IntN(2) == 0 {
		opts = append(opts, client.GracePeriodSeconds(0))
	}
	return client.IgnoreNotFound(w.client(row).Delete(ctx, o, opts...))
}

// move makes a namespace, or deletes the one that was made last with all that is in it.
func (w *crashWalk) move(ctx context.Context) error {
	if len(w.namespaces) > 1 {
		gone := w.namespaces[1]
		w.namespaces = w.namespaces[:1]
		for at := range w.made {
			if at.namespace == gone {
				delete(w.made, at)
			}
		}
		return w.virtual.CoreV1().Namespaces().Delete(ctx, gone, metav1.DeleteOptions{})
	}
	w.generations++
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("n%d", w.generations)}}
	if _, err := w.virtual.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
		return err
	}
	w.namespaces = append(w.namespaces, ns.Name)
	testhost.Eventually(w.t, "see the namespace's service account", func(ctx context.Context) error {
		_, err := w.virtual.CoreV1().ServiceAccounts(ns.Name).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	return nil
}

// check lets pass what the API may answer to a step that comes too early.
func (w *crashWalk) check(err error) {
	switch {
	case err == nil, apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err), apierrors.IsConflict(err), apierrors.IsForbidden(err) && strings.Contains(err.Error(), "being terminated"):
	case strings.Contains(err.Error(), "no matches for"), strings.Contains(err.Error(), errCut.Error()), apierrors.IsInternalError(err), apierrors.IsServiceUnavailable(err):
		// The syncer has not defined the kind yet, or it reserves no address because it is down.
	default:
		w.t.Errorf("step: %v", err)
	}
}

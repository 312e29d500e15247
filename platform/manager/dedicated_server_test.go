// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/storemark"
	"github.com/berth-dev/berth/kine"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/platform/hostaccess"
	"github.com/berth-dev/berth/platform/pod"
	"github.com/berth-dev/berth/platform/spaceprocess"
	"github.com/berth-dev/berth/snapshot"
	"github.com/berth-dev/berth/translate"
)

// inServer is the spec of a dedicated space with a store in a database server.
func inServer() v1alpha1.SpaceSpec {
	return v1alpha1.SpaceSpec{Isolation: v1alpha1.Dedicated, Store: v1alpha1.Store{Type: v1alpha1.StorePostgreSQL, SecretName: "moved-store"}}
}

// oneSecret is a host that has only the Secret; nil for none.
type oneSecret struct {
	client.Client
	secret *corev1.Secret
}

func (s *oneSecret) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	if s.secret == nil || key != client.ObjectKeyFromObject(s.secret) {
		return apierrors.NewNotFound(corev1.Resource("secrets"), key.Name)
	}
	s.secret.DeepCopyInto(into.(*corev1.Secret))
	return nil
}

// newServed is a platform with such a space, whose pod has the store.
func newServed(t *testing.T) (m *movable, secret *corev1.Secret) {
	t.Helper()
	m = newMovable(t)
	spec := inServer()
	settings, errs := m.config.Specs.Read(&spec, field.NewPath("spec"))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	m.config.Specs.Set("moved", settings)
	m.config.StoreSecrets = "platform"
	secret = &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: "platform", Name: "moved-store", Labels: map[string]string{translate.LabelSpace: "moved"}},
		Data:       map[string][]byte{"dsn": []byte("postgres://u:first@127.0.0.1:1/db")},
	}
	m.hostClient = &oneSecret{secret: secret}
	m.pods = &dedicatedPods{Pods: &pod.Pods{}}
	if _, err := datadir.StoreID(m.config.DataDir, "moved"); err != nil {
		t.Fatal(err)
	}
	dir := datadir.Space(m.config.DataDir, "moved")
	if err := errors.Join(os.Remove(filepath.Join(dir, "store.db")), storemark.Write(dir, storemark.Mark{Database: "database"}), snapshot.MarkReceived(dir)); err != nil {
		t.Fatal(err)
	}
	return m, secret
}

// D4, T9: the pod of a space with a store in a database server has no volume, and the template of the others doesn't matter to it.
func TestTheStoreInAServerNeedsNoVolume(t *testing.T) {
	m, _ := newServed(t)
	if err := os.MkdirAll(datadir.Dedicated(m.config.DataDir, "moved"), 0o700); err != nil {
		t.Fatal(err)
	}
	m.pods.DedicatedPods.Template = &appsv1.StatefulSet{}
	m.pods.DedicatedPods.Template.Spec.VolumeClaimTemplates = []corev1.PersistentVolumeClaim{{}}
	m.processes.add("moved", m.pod, 1)
	for _, when := range []string{"when it is made", "afterwards"} {
		if claims, err := m.podClaims("moved"); err != nil || len(claims) > 0 {
			t.Errorf("%s, the pod has the claims %v (%v)", when, claims, err)
		}
	}
	if condition := m.volumeCondition("moved"); condition != nil {
		t.Errorf("the condition is %+v", condition)
	}
}

// D4, S3: a pod gets what the Secret of its own space says, and keeps that while the Secret can't be read.
func TestAPodGetsWhatItsSecretSays(t *testing.T) {
	m, secret := newServed(t)
	store := inServer().Store
	read := func(space string) string {
		data, err := m.podServer(t.Context(), space, store)
		if err != nil {
			return err.Error()
		}
		return string(data)
	}
	if other := read("another"); !strings.Contains(other, "not for this space") {
		t.Errorf("another space gets %s", other)
	}
	if has := read("moved"); !strings.Contains(has, "u:first@") || m.podServerChanged(t.Context(), "moved", store) {
		t.Errorf("the pod gets %s", has)
	}
	secret.Data["dsn"] = []byte("postgres://u:second@127.0.0.1:1/db")
	if !m.podServerChanged(t.Context(), "moved", store) {
		t.Error("another password is not noticed")
	}
	if has := read("moved"); !strings.Contains(has, "u:second@") || m.podServerChanged(t.Context(), "moved", store) {
		t.Errorf("the pod gets %s", has)
	}
	m.hostClient = &oneSecret{}
	if has := read("moved"); !strings.Contains(has, "u:second@") || m.podServerChanged(t.Context(), "moved", store) {
		t.Errorf("without the Secret, the pod gets %s", has)
	}
}

// D4: the process of a dedicated space on this machine gets what its Secret says by now, once it has been prepared.
func TestAProcessGetsWhatItsSecretSays(t *testing.T) {
	m, secret := newServed(t)
	dir := t.TempDir()
	path := filepath.Join(dir, spaceprocess.ServerFile)
	renew := func() {
		t.Helper()
		if err := m.renewServer(t.Context(), "moved", dir); err != nil {
			t.Fatal(err)
		}
	}
	renew()
	if _, err := os.Stat(path); !os.IsNotExist(err) {
		t.Errorf("a process that is not prepared has the file: %v", err)
	}
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, password := range []string{"first", "second"} {
		secret.Data["dsn"] = []byte("postgres://u:" + password + "@127.0.0.1:1/db")
		renew()
		if has, err := os.ReadFile(path); err != nil || !strings.Contains(string(has), "u:"+password+"@") {
			t.Errorf("the process has %s (%v)", has, err)
		}
	}
}

// S3: what a pod has written to a database is opened only if the admin trusts it, also after a restart, and this process copies nothing of it.
func TestHostileADatabaseThatAPodHasWrittenIsNotOpened(t *testing.T) {
	m, _ := newServed(t)
	object := &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Name: "moved"}, Spec: inServer()}
	object.Spec.Isolation = v1alpha1.Shared
	if _, err := m.beginToShare(object); !errors.Is(err, errUntrusted) {
		t.Errorf("it may be shared: %v", err)
	}
	if here, err := m.notMovedYet("moved"); err != nil || here {
		t.Errorf("a snapshot is taken of the database (%v)", err)
	}
	keeper, err := snapshot.NewKeeper(snapshot.Config{Dir: datadir.Spaces(m.config.DataDir), Scratch: t.TempDir(), Spaces: asleep{}, Server: m.storeServer})
	if err != nil {
		t.Fatal(err)
	}
	if err := keeper.Copy(t.Context(), "moved", filepath.Join(t.TempDir(), "copy.db")); err == nil || !strings.Contains(err.Error(), "only the pod copies that") {
		t.Errorf("it is copied: %v", err)
	}
	if err := m.admitReceived(t.Context(), object); !errors.Is(err, errUntrusted) {
		t.Errorf("what a deleted space has left is opened: %v", err)
	}
	// After a restart, the space goes on in its pod until the change.
	if err := os.MkdirAll(datadir.Dedicated(m.config.DataDir, "moved"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := m.admitReceived(t.Context(), object); err != nil {
		t.Errorf("the space doesn't go on in its pod: %v", err)
	}
	if !servedByPod(datadir.Space(m.config.DataDir, "moved")) {
		t.Error("the mark of the store is gone")
	}
	object.Annotations = map[string]string{v1alpha1.AnnotationTrustDedicated: "true"}
	if err := m.checkAndUnmark(t.Context(), "moved"); !errors.Is(err, kine.ErrServer) { // nothing listens there
		t.Errorf("it counts as trusted without its epoch: %v", err)
	}
	if end, err := m.beginToShare(object); err != nil {
		t.Errorf("it may not be shared: %v", err)
	} else {
		end()
	}
}

// D4: a space that was being deleted when the platform was restarted is deleted with what it has in its database.
func TestADeletionAfterARestartFindsTheDatabase(t *testing.T) {
	m, _ := newServed(t)
	m.config.Specs.Remove("moved") // which are not read for a space that is being deleted
	spec := applied{Spec: inServer()}
	_, err := m.deletions.begin("moved", func() (func(), error) { return func() {}, nil })
	if err := errors.Join(err, spec.write(datadir.Space(m.config.DataDir, "moved"))); err != nil {
		t.Fatal(err)
	}
	if err := m.dropStore(t.Context(), "moved"); !errors.Is(err, kine.ErrServer) || !strings.Contains(err.Error(), "127.0.0.1:1") {
		t.Errorf("the database is not asked: %v", err)
	}
}

// T8, D4: a pod may open a store that another process has opened since only when the space begins there, and when the pod says that it waits.
func TestAPodThatWaitsIsAllowedToOpenTheStore(t *testing.T) {
	m, _ := newServed(t)
	m.access = hostaccess.New(nil, nil, clock.RealClock{})
	k := &podKeeper{Manager: m.Manager, space: "moved", pod: m.pod}
	begin := func() {
		t.Helper()
		if err := m.moveStoreToPod(t.Context(), "moved", m.pod); err != nil {
			t.Fatal(err)
		}
	}
	look := func() {
		t.Helper()
		if _, err := k.look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	for _, step := range []struct {
		what string
		do   func()
		want int32
	}{
		{"a pod that begins", begin, 1},
		{"the platform looks at it", look, 1},
		{"the platform starts again", begin, 1},
		{"the pod waits", func() { m.waits.Store(true); look() }, 2},
		{"it has the store", look, 2},
	} {
		step.do()
		if allowed := m.allowed.Load(); allowed != step.want {
			t.Errorf("%s: it was allowed %d times, want %d", step.what, allowed, step.want)
		}
	}
}

// D1, D4: the pod of a space with a store in a server gets its keys before it begins, its files are replaced without the loss of the mark, and
// a platform that starts again copies no store.
func TestAPodBeginsWithAStoreInAServer(t *testing.T) {
	m, _ := newServed(t)
	if err := m.moveStoreToPod(t.Context(), "moved", m.pod); err != nil {
		t.Fatal(err)
	}
	state, err := m.pod.State(t.Context())
	if err != nil || !state.Begun || state.HasStore {
		t.Errorf("the state is %+v (%v)", state, err)
	}
	if where, err := m.storeLocation("moved"); err != nil || where != nil {
		t.Errorf("the store is noted to be in the pod (%v)", err)
	}
	if _, _, err := m.checkPod(t.Context(), "moved", m.pod); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(m.dir, "node.key")); err != nil {
		t.Errorf("the pod has no keys: %v", err)
	}
	dir := datadir.Space(m.config.DataDir, "moved")
	id, err := datadir.StoreID(m.config.DataDir, "moved")
	if err != nil {
		t.Fatal(err)
	}
	secret, err := os.ReadFile(filepath.Join(dir, "store.id"))
	if err != nil {
		t.Fatal(err)
	}
	files := kine.Files{Epoch: 3, Data: map[string][]byte{"store.id": secret, "store.server": []byte("{}")}}
	if err := m.replaceFiles("moved", id, files, false, nil); err != nil || !servedByPod(dir) {
		t.Errorf("the mark of the store is gone with the other files (%v)", err)
	}
}

// S3, D4: a directory that is made of a database which a pod has written is marked, whatever the pod has left out, and the space runs in its pod
// although its spec says otherwise.
func TestHostileFilesOfAPodLeaveNoMarkOut(t *testing.T) {
	of := func(spec, status v1alpha1.Isolation, reason string, paused bool) *v1alpha1.Space {
		object := &v1alpha1.Space{ObjectMeta: metav1.ObjectMeta{Generation: 5}, Spec: inServer()}
		object.Spec.Isolation, object.Spec.Paused = spec, &paused
		object.Status = v1alpha1.SpaceStatus{Isolation: status, ObservedGeneration: 4, Conditions: []metav1.Condition{{Type: v1alpha1.ConditionWithinShare, Reason: reason}}}
		return object
	}
	for name, test := range map[string]struct {
		object *v1alpha1.Space
		want   *applied
	}{
		"dedicated":      {of(v1alpha1.Dedicated, v1alpha1.Dedicated, "", false), nil},
		"not shared yet": {of(v1alpha1.Shared, v1alpha1.Dedicated, "", false), &applied{Generation: 4}},
		"outgrown":       {of(v1alpha1.Shared, v1alpha1.Dedicated, v1alpha1.ReasonDedicated, false), &applied{Generation: 4, Outgrown: true}},
		"paused":         {of(v1alpha1.Dedicated, v1alpha1.Dedicated, "", true), &applied{Generation: 5}},
	} {
		dir := t.TempDir()
		if err := errors.Join(snapshot.MarkReceived(dir), finishFiles(dir, test.object)); err != nil {
			t.Fatal(err)
		}
		if !servedByPod(dir) {
			t.Errorf("%s: the directory has no mark", name)
		}
		has, err := readApplied(dir)
		if err != nil || (has == nil) != (test.want == nil) {
			t.Errorf("%s: it runs with %+v (%v)", name, has, err)
			continue
		}
		if has != nil && (has.Generation != test.want.Generation || has.Outgrown != test.want.Outgrown || has.Spec.Isolation != v1alpha1.Dedicated) {
			t.Errorf("%s: it runs with %+v, want %+v", name, has, test.want)
		}
	}
}

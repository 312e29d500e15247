// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package syncer_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/internal/testhost"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/translate"
)

// provisioner is the embedded host's.
const provisioner = "berth.dev/simulated"

// withExportedClasses begins a syncer of a space that may have classes and volumes of
// its own, on a host that holds it to that.
func withExportedClasses(t *testing.T, name string) *testEnv {
	t.Helper()
	env := synced(t, name, exported()...)
	env.guard(t)
	return env
}

// exported are the options of all spaces of these tests with classes and volumes of
// their own: they share what the host is guarded by.
func exported() []string {
	return []string{"ownpriorityclasses=100", "ownstorageclasses=" + provisioner, "ownpersistentvolumes=" + ownDisks}
}

// guard has the host hold accounts to what the space syncs.
func (env *testEnv) guard(t *testing.T) {
	t.Helper()
	admin, err := client.New(env.cluster.Config(), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	if err := isolation.InstallPolicies(t.Context(), admin, env.options.Sync); err != nil {
		t.Fatal(err)
	}
}

func priorityClass(name string, value int32) *schedulingv1.PriorityClass {
	return &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Value: value, PreemptionPolicy: ptr.To(corev1.PreemptNever)}
}

func storageClassOf(name, provisioner string) *storagev1.StorageClass {
	return &storagev1.StorageClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Provisioner: provisioner}
}

// account is the API as the space's own account on the host.
func (env *testEnv) account(t *testing.T) kubernetes.Interface {
	t.Helper()
	posing := rest.CopyConfig(env.cluster.Config())
	posing.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:" + env.space.HostNamespace() + ":berth-syncer",
		Groups:   []string{"system:serviceaccounts", "system:serviceaccounts:" + env.space.HostNamespace(), "system:authenticated"},
	}
	return testhost.Clientset(t, posing)
}

// S1, M4: where it is enabled, pods of a space have the priorities of the tenant's
// own classes on the host: no higher than the admin's bound, preempting nobody,
// and invisible to other spaces.
func TestATenantsPrioritiesStayBelowTheBound(t *testing.T) {
	t.Parallel()
	env, other := withExportedClasses(t, "prio"), synced(t, "prio-other", "priorityclasses=on")
	ours, theirs := env.virtual.SchedulingV1().PriorityClasses(), env.host.SchedulingV1().PriorityClasses()
	high := priorityClass("high", 1_000_000)
	high.GlobalDefault, high.PreemptionPolicy = true, ptr.To(corev1.PreemptLowerPriority)
	must(t, ours.Create, high)
	must(t, ours.Create, priorityClass("low", -7)) // other spaces' pods of no class would preempt its pods
	for name, want := range map[string]int32{"high": 100, "low": 0} {
		h := awaited(t, "see class "+name, theirs.Get, "prio."+name, nil)
		if h.Value != want || h.GlobalDefault || ptr.Deref(h.PreemptionPolicy, "") != corev1.PreemptNever {
			t.Errorf("class %s is of %d on the host, default: %t, preempting: %v; want %d", name, h.Value, h.GlobalDefault, h.PreemptionPolicy, want)
		}
		if len(h.OwnerReferences) != 1 || h.OwnerReferences[0].Name != env.space.HostNamespace() {
			t.Errorf("class %s is owned by %v, so that it outlives the space", name, h.OwnerReferences)
		}
	}
	testhost.Eventually(t, "have each counted once, as what it is", func(context.Context) error {
		if have := env.run.host.Objects()["prio"]; have["ownpriorityclasses"] != 2 || have["priorityclasses"] != 0 {
			return fmt.Errorf("counted are %v", have)
		}
		return nil
	})
	for name, want := range map[string]int32{"high": 100, "low": 0} {
		pod := newPod(name)
		pod.Spec.PriorityClassName = name
		must(t, env.virtual.CoreV1().Pods("default").Create, pod)
		h := awaited(t, "see pod "+name, env.host.CoreV1().Pods(env.space.HostNamespace()).Get, env.hostName(name), nil)
		if ptr.Deref(h.Spec.Priority, 0) != want || ptr.Deref(h.Spec.PreemptionPolicy, "") != corev1.PreemptNever {
			t.Errorf("pod %s has priority %v, policy %v", name, h.Spec.Priority, h.Spec.PreemptionPolicy)
		}
	}
	// Made again with another value, it is another class.
	if err := ours.Delete(t.Context(), "low", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	must(t, ours.Create, priorityClass("low", 3))
	awaited(t, "see the other class", theirs.Get, "prio.low", func(h *schedulingv1.PriorityClass) error {
		if h.Value != 3 {
			return fmt.Errorf("its value is %d", h.Value)
		}
		return nil
	})
	// What another space imports is the host's own, not this one's.
	must(t, theirs.Create, priorityClass("prio-hosts", 5))
	t.Cleanup(func() { _ = theirs.Delete(context.Background(), "prio-hosts", metav1.DeleteOptions{}) })
	awaited(t, "show the host's", other.virtual.SchedulingV1().PriorityClasses().Get, "prio-hosts", nil)
	if err := gone(other.virtual.SchedulingV1().PriorityClasses().Get(t.Context(), "prio.high", metav1.GetOptions{})); err != nil {
		t.Errorf("another space sees a tenant's class: %v", err)
	}
	stolen := newPod("stolen")
	stolen.Spec.PriorityClassName = "prio.high"
	if _, err := other.virtual.CoreV1().Pods("default").Create(t.Context(), stolen, metav1.CreateOptions{}); err == nil {
		t.Error("another space's pod takes a tenant's class")
	}
	if err := ours.Delete(t.Context(), "high", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	awaitedGone(t, "see the class gone", theirs.Get, "prio.high")
}

// S1, M4: where it is enabled, claims get volumes of the tenant's own storage
// classes, if these are of an allowed provisioner and name nothing of the host's.
func TestATenantsStorageClassesNameNothingOfTheHosts(t *testing.T) {
	t.Parallel()
	env := withExportedClasses(t, "store")
	ours, theirs := env.virtual.StorageV1().StorageClasses(), env.host.StorageV1().StorageClasses()
	fast := storageClassOf("fast", provisioner)
	fast.Parameters, fast.AllowVolumeExpansion = map[string]string{"csi.storage.k8s.io/fstype": "ext4"}, ptr.To(true)
	fast.Annotations = map[string]string{"storageclass.kubernetes.io/is-default-class": "true"}
	must(t, ours.Create, fast)
	h := awaited(t, "see the class", theirs.Get, "store.fast", nil)
	if h.Parameters["csi.storage.k8s.io/fstype"] != "ext4" || h.Annotations["storageclass.kubernetes.io/is-default-class"] != "" {
		t.Errorf("on the host it is %v", h)
	}
	must(t, env.virtual.CoreV1().PersistentVolumeClaims("default").Create, newClaimOf("data", "fast"))
	claim := awaited(t, "see the claim bound", env.virtual.CoreV1().PersistentVolumeClaims("default").Get, "data", func(c *corev1.PersistentVolumeClaim) error {
		if c.Status.Phase != corev1.ClaimBound {
			return errors.New("it is " + string(c.Status.Phase))
		}
		return nil
	})
	volume := awaited(t, "see the volume", env.virtual.CoreV1().PersistentVolumes().Get, claim.Spec.VolumeName, nil)
	onHost := awaited(t, "see the claim", env.host.CoreV1().PersistentVolumeClaims(env.space.HostNamespace()).Get, env.hostName("data"), nil)
	if volume.Spec.StorageClassName != "fast" || ptr.Deref(onHost.Spec.StorageClassName, "") != "store.fast" {
		t.Errorf("the volume is of class %q, the host's claim of %v", volume.Spec.StorageClassName, onHost.Spec.StorageClassName)
	}

	for name, attack := range map[string]struct {
		change func(*storagev1.StorageClass)
		says   string
	}{
		"other": {func(c *storagev1.StorageClass) { c.Provisioner = "host.example/all" }, "provisioner"},
		"secret": {func(c *storagev1.StorageClass) {
			c.Parameters = map[string]string{"csi.storage.k8s.io/provisioner-secret-namespace": "kube-system"}
		}, "parameters[csi.storage.k8s.io/provisioner-secret-namespace]"},
		"options":  {func(c *storagev1.StorageClass) { c.MountOptions = []string{"suid"} }, "mountOptions"},
		"retained": {func(c *storagev1.StorageClass) { c.ReclaimPolicy = ptr.To(corev1.PersistentVolumeReclaimRetain) }, "reclaimPolicy"},
	} {
		class := storageClassOf(name, provisioner)
		attack.change(class)
		must(t, ours.Create, class)
		env.awaitWarning(t, "StorageClass", name, attack.says)
		must(t, env.virtual.CoreV1().PersistentVolumeClaims("default").Create, newClaimOf(name, name))
		env.awaitWarning(t, "PersistentVolumeClaim", name, "spec.storageClassName", `"`+name+`"`)
		for what, err := range map[string]error{
			"class": gone(theirs.Get(t.Context(), "store."+name, metav1.GetOptions{})),
			"claim": gone(env.host.CoreV1().PersistentVolumeClaims(env.space.HostNamespace()).Get(t.Context(), env.hostName(name), metav1.GetOptions{})),
		} {
			if err != nil {
				t.Errorf("%s, its %s: %v", name, what, err)
			}
		}
	}
}

// M4: a class under the name of a space's own that another space's account has
// made, with parameters of its choice, is nobody's else: nothing is provisioned by
// it, no pod gets its priority, and no space imports it.
func TestAClassOfAnotherSpacesIsNotTakenForOnesOwn(t *testing.T) {
	t.Parallel()
	env := withExportedClasses(t, "robbed")
	other := synced(t, "robbed-other", "storageclasses=on")
	storages, priorities := env.host.StorageV1().StorageClasses(), env.host.SchedulingV1().PriorityClasses()
	thiefs := map[string]string{translate.LabelSpace: "thief"}
	for name, annotations := range map[string]map[string]string{
		"robbed.fast":   {translate.AnnotationName: "fast", translate.AnnotationUID: "u"},
		"robbed.simple": nil,
	} {
		class := storageClassOf(name, provisioner)
		class.Labels, class.Annotations, class.Parameters = thiefs, annotations, map[string]string{"server": "the thief's"}
		must(t, storages.Create, class)
		t.Cleanup(func() { _ = storages.Delete(context.Background(), name, metav1.DeleteOptions{}) })
	}
	first := priorityClass("robbed.first", 90)
	first.Labels, first.Annotations = thiefs, map[string]string{translate.AnnotationName: "first"}
	must(t, priorities.Create, first)
	t.Cleanup(func() { _ = priorities.Delete(context.Background(), first.Name, metav1.DeleteOptions{}) })

	for _, name := range []string{"fast", "simple"} {
		must(t, env.virtual.StorageV1().StorageClasses().Create, storageClassOf(name, provisioner))
		env.awaitWarning(t, "StorageClass", name, "another object", name)
		must(t, env.virtual.CoreV1().PersistentVolumeClaims("default").Create, newClaimOf(name, name))
		env.awaitWarning(t, "PersistentVolumeClaim", name, "another object", name)
		if err := gone(env.host.CoreV1().PersistentVolumeClaims(env.space.HostNamespace()).Get(t.Context(), env.hostName(name), metav1.GetOptions{})); err != nil {
			t.Errorf("claim %s: %v", name, err)
		}
	}
	must(t, env.virtual.SchedulingV1().PriorityClasses().Create, priorityClass("first", 3))
	pod := newPod("first")
	pod.Spec.PriorityClassName = "first"
	testhost.Eventually(t, "name a class that admission learns of from a watch", func(ctx context.Context) error {
		_, err := env.virtual.CoreV1().Pods("default").Create(ctx, pod, metav1.CreateOptions{})
		return err
	})
	env.awaitWarning(t, "Pod", "first", "another object", "first")

	must(t, storages.Create, storageClassOf("robbed-hosts", provisioner))
	t.Cleanup(func() { _ = storages.Delete(context.Background(), "robbed-hosts", metav1.DeleteOptions{}) })
	awaited(t, "show the host's", other.virtual.StorageV1().StorageClasses().Get, "robbed-hosts", nil)
	for _, name := range []string{"robbed.fast", "robbed.simple"} {
		if err := gone(other.virtual.StorageV1().StorageClasses().Get(t.Context(), name, metav1.GetOptions{})); err != nil {
			t.Errorf("another space imports %s: %v", name, err)
		}
	}
}

// M4: a class of the host's that is not imported is not for a space's claims.
func TestAClaimNamesNoClassThatIsNotShown(t *testing.T) {
	t.Parallel()
	env := synced(t, "hidden-class", "storageclasses=berth.dev/show=true")
	theirs := env.host.StorageV1().StorageClasses()
	must(t, theirs.Create, storageClassOf("hidden-class-gold", provisioner))
	t.Cleanup(func() { _ = theirs.Delete(context.Background(), "hidden-class-gold", metav1.DeleteOptions{}) })
	must(t, env.virtual.StorageV1().StorageClasses().Create, storageClassOf("hidden-class-gold", "mine.example/own")) // the tenant may say what it likes
	must(t, env.virtual.CoreV1().PersistentVolumeClaims("default").Create, newClaimOf("data", "hidden-class-gold"))
	env.awaitWarning(t, "PersistentVolumeClaim", "data", "spec.storageClassName", "hidden-class-gold")
	if err := gone(env.host.CoreV1().PersistentVolumeClaims(env.space.HostNamespace()).Get(t.Context(), env.hostName("data"), metav1.GetOptions{})); err != nil {
		t.Error(err)
	}
}

// M4, N1: nor does a claim get one without naming it: neither the class nor its
// name is for spaces, be it the host's default.
func TestAClaimWithoutAClassGetsNoneThatIsNotShown(t *testing.T) {
	t.Parallel()
	env := synced(t, "classless", "storageclasses=berth.dev/classless=true")
	claims, theirs := env.virtual.CoreV1().PersistentVolumeClaims("default"), env.host.CoreV1().PersistentVolumeClaims(env.space.HostNamespace())
	// There is no default class in the space, but on the host.
	must(t, claims.Create, newClaim("data"))
	env.awaitWarning(t, "PersistentVolumeClaim", "data", "spec.storageClassName", "no default storage class")
	if err := gone(theirs.Get(t.Context(), env.hostName("data"), metav1.GetOptions{})); err != nil {
		t.Error(err)
	}

	// One that has it from before is not told its name.
	old := must(t, claims.Create, newClaim("old"))
	host := must(t, theirs.Create, env.space.Claim(old))
	if ptr.Deref(host.Spec.StorageClassName, "") != "standard" {
		t.Fatalf("the host gives it the class %v", host.Spec.StorageClassName)
	}
	host.Status.Conditions = []corev1.PersistentVolumeClaimCondition{{Type: corev1.PersistentVolumeClaimFileSystemResizePending, Status: corev1.ConditionTrue}}
	host.ResourceVersion = "" // others write to it, too
	if _, err := theirs.UpdateStatus(t.Context(), host, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	awaited(t, "see its status", claims.Get, "old", func(c *corev1.PersistentVolumeClaim) error {
		if c.Spec.StorageClassName != nil {
			t.Fatalf("the space is told of the class %s", *c.Spec.StorageClassName)
		}
		if len(c.Status.Conditions) == 0 {
			return errors.New("it has no condition yet")
		}
		return nil
	})

	// Once it is imported, by this space alone, the claim is of it, on both sides.
	label := func(value string) error {
		patch := fmt.Appendf(nil, `{"metadata":{"labels":{"berth.dev/classless":%s}}}`, value)
		_, err := env.host.StorageV1().StorageClasses().Patch(context.Background(), "standard", types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	}
	if err := label(`"true"`); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = label("null") })
	standard := func(c *corev1.PersistentVolumeClaim) error {
		if class := ptr.Deref(c.Spec.StorageClassName, ""); class != "standard" {
			return fmt.Errorf("it is of class %q", class)
		}
		return nil
	}
	awaited(t, "see it on the host", theirs.Get, env.hostName("data"), standard)
	awaited(t, "be told its class", claims.Get, "data", standard)
}

// M4, Q3: who holds a space's account gets no further by the host's classes.
func TestTheHostProtectsASpacesExportedClasses(t *testing.T) {
	t.Parallel()
	env := withExportedClasses(t, "warden")
	account := env.account(t)
	priority := func(name string, value int32, space string) *schedulingv1.PriorityClass {
		c := priorityClass(name, value)
		c.PreemptionPolicy, c.Labels = ptr.To(corev1.PreemptNever), map[string]string{translate.LabelSpace: space}
		return c
	}
	storage := func(provisioner string, parameters map[string]string) *storagev1.StorageClass {
		c := storageClassOf("warden.x", provisioner)
		c.Labels, c.Parameters = map[string]string{translate.LabelSpace: "warden"}, parameters
		return c
	}
	preempting, usual := priority("warden.x", 1, "warden"), priority("warden.x", 1, "warden")
	preempting.PreemptionPolicy, usual.GlobalDefault = ptr.To(corev1.PreemptLowerPriority), true
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	create := func(c *schedulingv1.PriorityClass) func() error {
		return func() error {
			_, err := account.SchedulingV1().PriorityClasses().Create(t.Context(), c, dry)
			return err
		}
	}
	provision := func(c *storagev1.StorageClass) func() error {
		return func() error { _, err := account.StorageV1().StorageClasses().Create(t.Context(), c, dry); return err }
	}
	testhost.Eventually(t, "be guarded", func(context.Context) error {
		if err := create(priority("warden.x", 1, "warden"))(); err != nil {
			return err // the authorizer learns of roles from a watch
		}
		return refusedBy("berth-space-classes", create(priority("warden.x", 101, "warden"))())
	})
	for name, try := range map[string]func() error{
		"a priority over the bound":  create(priority("warden.x", 101, "warden")),
		"preemption":                 create(preempting),
		"the default of all":         create(usual),
		"another space's priority":   create(priority("prio.x", 1, "prio")),
		"another space's name":       create(priority("prio.x", 1, "warden")),
		"a longer space's name":      create(priority("warden--2.x", 1, "warden")),
		"another space's hash":       create(priority(translate.Space{Name: "prio"}.ClusterName("a---b"), 1, "warden")),
		"a hash of nobody's":         create(priority("prio-x---abcdefghijklmnopqrstuvwxyz", 1, "warden")),
		"a priority of nobody's":     create(priority("warden.x", 1, "")),
		"a priority like the host's": create(priority("gold", 1, "warden")),
		"another provisioner":        provision(storage("host.example/all", nil)),
		"a secret of the host's":     provision(storage(provisioner, map[string]string{"adminSecretName": "x"})),
		"removing a class of the hosts": func() error {
			return account.StorageV1().StorageClasses().Delete(t.Context(), "standard", metav1.DeleteOptions{DryRun: dry.DryRun})
		},
	} {
		if err := refusedBy("berth-space-classes", try()); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func refusedBy(policy string, err error) error {
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), policy) {
		return fmt.Errorf("want it refused by %s, got %w", policy, err)
	}
	return nil
}

func newClaimOf(name, class string) *corev1.PersistentVolumeClaim {
	claim := newClaim(name)
	claim.Spec.StorageClassName = &class
	return claim
}

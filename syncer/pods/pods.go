// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package pods

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/syncer/classes"
	"github.com/berth-dev/berth/syncer/engine"
	"github.com/berth-dev/berth/syncer/hostcache"
	"github.com/berth-dev/berth/syncer/patches"
	"github.com/berth-dev/berth/syncer/resources"
	"github.com/berth-dev/berth/translate"
	"github.com/berth-dev/berth/translate/pod"
)

// Syncer syncs pods, their nodes and events, and the objects that they refer to.
type Syncer struct {
	*engine.Engine
	classes *classes.Syncer
	where   translate.Placement
	release string
	patches *patches.Patches
	tenant  func() string
	// tokens are the token secrets that were written but not yet seen.
	tokens    tokenWrites
	tokenKey  string
	tokenPace *rate.Limiter
	ownNodes  ownNodes
}

// Config configures the syncer of the pods of a space.
type Config struct {
	Classes *classes.Syncer
	// Where is the placement of the pods.
	Where translate.Placement
	// Release is the release of Kubernetes that virtual nodes report.
	Release string
	// TokenKey is as in [github.com/berth-dev/berth/syncer.Config].
	TokenKey string
	// Patches are an admin's changes of host pods; nil if there are none.
	Patches *patches.Patches
	// Tenant, if set, returns the tenant of the space; empty if it has none.
	Tenant func() string
}

// New returns the syncer of the pods of an engine's space.
func New(e *engine.Engine, c Config) *Syncer {
	s := &Syncer{
		Engine: e, classes: c.Classes, where: c.Where, release: c.Release, patches: c.Patches, tenant: c.Tenant, tokenKey: c.TokenKey, tokenPace: newTokenPace(),
	}
	if s.tenant == nil {
		s.tenant = func() string { return "" }
	}
	e.NamedNodes = s.nodesNamedBy
	e.Work[podsIn] = s.enqueuePodsIn
	return s
}

// Declarations returns the functions that declare this package's resources to the engine.
func (s *Syncer) Declarations() map[string]func() error {
	return map[string]func() error{
		resources.Pods: s.syncPods, resources.Nodes: s.syncNodes, resources.ConfigMaps: s.syncConfigMaps, resources.Secrets: s.syncSecrets,
		resources.NetworkPolicies: s.syncNetworkPolicies, resources.Budgets: s.syncBudgets,
		resources.ServiceAccounts: s.syncServiceAccounts, resources.Events: s.syncEvents, resources.ResourceClaims: s.syncResourceClaims,
	}
}

// syncPods does for a space's pods what a kubelet does in a cluster: it binds them to a node alias, reports their
// status, and removes them when their containers have stopped.
func (s *Syncer) syncPods() error {
	informer := s.Informers.Core().V1().Pods().Informer()
	if err := engine.IndexReferences(informer); err != nil {
		return err
	}
	k := &engine.Resource[*corev1.Pod]{
		Engine: s.Engine, Name: resources.Pods, NameLimit: translate.LimitSubdomain,
		Virtual: informer,
		ToHost:  s.podToHost,
		UpdateHost: func(want, have *corev1.Pod) bool {
			pod.TellNode(s.Space, want, have)
			return pod.Push(want, have)
		},
		NeedsRecreate:      pod.ClaimsDiffer,
		BeforeCreate:       s.completePod,
		ForCreate:          pod.ForCreate,
		AfterCreate:        s.reportLeftOut,
		UpdateSubresources: s.updatePodSubresources,
		Relabel:            s.relabelPod,
		SyncStatus:         s.syncPodStatus,
		OnHostEvent:        s.enqueueBudgets,
		// Of a pod's references, only those of ephemeral containers can change.
		ConcernsNoOthers: func(was, is *corev1.Pod) bool {
			return len(was.Spec.EphemeralContainers) == len(is.Spec.EphemeralContainers)
		},
		ReportRefusal: s.reportPodRefusal,
	}
	k.HandleMissing = func(ctx context.Context, v *corev1.Pod) (bool, error) { return handleMissingPod(ctx, k, v) }
	k.HandleDeletion = func(ctx context.Context, v, host *corev1.Pod, exists bool) error {
		return handlePodDeletion(ctx, k, v, host, exists)
	}
	engine.Add(k, s.enqueueReferences)
	return nil
}

func (s *Syncer) podToHost(ctx context.Context, v *corev1.Pod) (*corev1.Pod, bool, error) {
	if pod.Gated(v) || s.Space.Settings.Claims && pod.AwaitsClaims(v) {
		return nil, false, nil
	}
	asked := pod.Asked(v)
	errs := append(pod.Check(&v.ObjectMeta, &asked), pod.CheckSettings(&s.Space.Settings, &v.ObjectMeta, &asked)...)
	if err := engine.Forbid(errs); err != nil {
		return nil, false, err
	}
	in, err := s.surroundings(v)
	if err != nil {
		return nil, false, err
	}
	if err := engine.Forbid(pod.CheckNamespaces(&v.Spec, in.Namespaces)); err != nil {
		return nil, false, err
	}
	host := pod.ToHost(s.Space, v, in)
	if err := engine.Forbid(pod.CheckHost(host)); err != nil {
		return host, true, err
	}
	return host, true, patched(s.patches.Any(ctx, s.patchedPod(v), host))
}

func (s *Syncer) patchedPod(v *corev1.Pod) patches.Pod {
	return patches.Pod{Tenant: s.tenant(), Space: s.Space.Name, Source: v}
}

// patched returns the error of a patch as one of the space's rules, of which the tenant is told.
func patched(err error) error {
	if _, is := errors.AsType[*patches.Error](err); is {
		return engine.Forbids(err)
	}
	return err
}

// relabelPod updates a host pod that exists, but would not be created today.
func (s *Syncer) relabelPod(ctx context.Context, v, host *corev1.Pod) error {
	in, err := s.surroundings(v)
	if err != nil {
		return err
	}
	have := host.DeepCopy()
	pod.PushLabels(s.Space, v, in, have)
	var failed error
	s.Compute(ctx, func() { failed = patched(s.patches.Labels(ctx, s.patchedPod(v), have)) })
	if failed != nil { // policies must go on to select the pod
		if !errors.As(failed, &engine.Forbidden{}) {
			return failed
		}
		s.patches.KeepLabels(have.Labels, host.Labels)
	}
	if maps.Equal(have.Labels, host.Labels) {
		return failed
	}
	return errors.Join(failed, s.HostAPI.Update(ctx, have))
}

// reportLeftOut tells the tenant which fields of a pod the host or Berth dropped. This can change how the pod runs: on
// a host that is too old, containers restart by other rules, or the pod-level limits are missing.
func (s *Syncer) reportLeftOut(v, sent, host *corev1.Pod) {
	if fields := pod.Dropped(sent, host); len(fields) > 0 {
		s.Recorder.Record(v, corev1.EventTypeWarning, engine.ReasonDropped, "the host's Kubernetes version dropped "+strings.Join(fields, ", ")+"; the pod runs without these fields")
	}
	in, err := s.surroundings(v)
	if err == nil {
		err = pod.CheckServiceLinks(v, in)
	}
	if errors.Is(err, bounds.ErrExceeded) {
		s.Recorder.Record(v, corev1.EventTypeWarning, engine.ReasonNoLinks, "the pod runs without the environment variables of Services: "+err.Error())
	}
}

// completePod sets the names that a new host pod needs: its classes, which are imported or the tenant's exported ones,
// its service account, and its node selector. An existing pod keeps them, whatever happens to these objects.
func (s *Syncer) completePod(ctx context.Context, v, host *corev1.Pod) (err error) {
	if err := engine.Forbid(append(s.foreignClasses(v), s.where.Check(&v.Spec)...)); err != nil {
		return err
	}
	if err := engine.Forbid(s.where.Place(v, host, s.hostNodeName)); err != nil {
		return err
	}
	if host.Spec.RuntimeClassName = v.Spec.RuntimeClassName; s.Space.Settings.PodSecurity.RuntimeClass != "" {
		host.Spec.RuntimeClassName = ptr.To(s.Space.Settings.PodSecurity.RuntimeClass)
	}
	if host.Spec.PriorityClassName, err = s.classes.HostPriority(ctx, v); err != nil {
		return err
	}
	if err := s.withAccount(ctx, v, host); err != nil {
		return err
	}
	s.Compute(ctx, func() { err = patched(s.patches.New(ctx, s.patchedPod(v), host)) })
	return err
}

// foreignClasses rejects runtime classes that the host does not offer to spaces.
func (s *Syncer) foreignClasses(v *corev1.Pod) (errs field.ErrorList) {
	name := v.Spec.RuntimeClassName
	if name == nil || *name == s.Space.Settings.PodSecurity.RuntimeClass {
		return nil
	}
	if _, ok := hostcache.Imported[*nodev1.RuntimeClass](s.Host, s.Sync, resources.RuntimeClasses, *name); !ok {
		errs = append(errs, field.Forbidden(field.NewPath("spec", "runtimeClassName"),
			fmt.Sprintf("class %q does not exist, or the host does not offer it to spaces; see 'kubectl get runtimeclasses'", *name)))
	}
	return errs
}

func (s *Syncer) surroundings(v *corev1.Pod) (pod.Surroundings, error) {
	lister, namespace := s.Informers.Core().V1().Services().Lister(), v.Namespace
	in := pod.Surroundings{}
	var err error
	if in.Services, err = lister.Services(namespace).List(labels.Everything()); err != nil {
		return in, err
	}
	slices.SortFunc(in.Services, func(a, b *corev1.Service) int { return compareNames(a, b) })
	if in.Namespaces, err = s.Informers.Core().V1().Namespaces().Lister().List(labels.Everything()); err != nil {
		return in, err
	}
	if len(s.Space.Settings.WorkloadIdentity) > 0 && v.Spec.ServiceAccountName != "" {
		// A pod can outlive its account. It keeps no label then.
		if in.Account, err = s.accountOf(v); client.IgnoreNotFound(err) != nil {
			return in, err
		}
	}
	if s.Sync.On(resources.NetworkPolicies) {
		if in.Policies, err = s.Informers.Networking().V1().NetworkPolicies().Lister().NetworkPolicies(namespace).List(labels.Everything()); err != nil {
			return in, err
		}
	}
	if s.Sync.On(resources.Budgets) {
		if in.Budgets, err = s.Informers.Policy().V1().PodDisruptionBudgets().Lister().PodDisruptionBudgets(namespace).List(labels.Everything()); err != nil {
			return in, err
		}
	}
	in.API, err = lister.Services(metav1.NamespaceDefault).Get("kubernetes")
	return in, client.IgnoreNotFound(err)
}

// syncPodStatus reports what happens to the host pod: first its node, by a binding, then its status.
func (s *Syncer) syncPodStatus(ctx context.Context, v, host *corev1.Pod) (time.Duration, error) {
	if host.UID == "" { // created just now, and not read back yet
		return 0, nil
	}
	if s.Queue.NewWaits() && s.followed(v, host) {
		return 0, nil // other pods get to the host before the tokens of this one
	}
	refresh, tokens := s.podTokens(ctx, v, host)
	return refresh, errors.Join(s.podReport(ctx, v, host), tokens)
}

// followed reports whether another sync of a pod follows this one: the watch of the host has delivered a change of the host pod meanwhile, or
// has yet to deliver that it was created.
func (s *Syncer) followed(v, host *corev1.Pod) bool {
	if s.Queue.Repeats(engine.Key{Resource: resources.Pods, NamespacedName: client.ObjectKeyFromObject(v)}) {
		return true
	}
	_, delivered := hostcache.Get[*corev1.Pod](s.Host, resources.Pods, host.Namespace, host.Name)
	return !delivered
}

func (s *Syncer) podReport(ctx context.Context, v, host *corev1.Pod) error {
	if host.Spec.NodeName != "" && v.Spec.NodeName == "" {
		return s.VirtualAPI.SubResource("binding").Create(ctx, v.DeepCopy(), &corev1.Binding{
			ObjectMeta: metav1.ObjectMeta{Namespace: v.Namespace, Name: v.Name, UID: v.UID},
			Target:     corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: s.Space.NodeAlias(host.Spec.NodeName)},
		}) // the update triggers another sync
	}
	var status corev1.PodStatus
	s.Compute(ctx, func() { status = pod.PullStatus(s.Space, v, host) })
	if !equality.Semantic.DeepEqual(status, v.Status) {
		out := v.DeepCopy()
		out.Status = status
		if err := s.VirtualAPI.Status().Update(ctx, out); err != nil {
			return err
		}
	}
	if host.DeletionTimestamp != nil {
		// If the pod was evicted, drained, or deleted on the host, its controller in the space learns it now, and not
		// only when the containers have stopped.
		grace := ptr.Deref(host.DeletionGracePeriodSeconds, 0)
		return s.VirtualAPI.Delete(ctx, v, client.Preconditions{UID: &v.UID}, client.GracePeriodSeconds(grace))
	}
	return nil
}

// handleMissingPod handles a pod that has a node, but no host pod. As in a cluster where the node has lost the pod, it
// is deleted, and its controller creates another. A finished pod stays, as it would in a cluster.
func handleMissingPod(ctx context.Context, k *engine.Resource[*corev1.Pod], v *corev1.Pod) (bool, error) {
	finished := v.Status.Phase == corev1.PodSucceeded || v.Status.Phase == corev1.PodFailed
	if finished {
		return true, nil
	}
	if v.Spec.NodeName == "" {
		return false, nil
	}
	if _, exists, err := hostPodOf(ctx, k, v); err != nil || exists {
		return true, err
	}
	return true, k.VirtualAPI.Delete(ctx, v, client.Preconditions{UID: &v.UID}, client.GracePeriodSeconds(0))
}

// hostPodOf reads v's host pod from the API, not from the watch.
func hostPodOf(ctx context.Context, k *engine.Resource[*corev1.Pod], v *corev1.Pod) (host *corev1.Pod, exists bool, err error) {
	host, err = k.Live(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: k.Space.HostNamespace(), Name: k.Space.HostName(v.Namespace, v.Name, k.NameLimit),
	}})
	if err != nil {
		return nil, false, client.IgnoreNotFound(err)
	}
	id, ours := translate.IdentityOf(host)
	return host, ours && id.Space == k.Space.Name && id.UID == v.UID, nil
}

// handlePodDeletion completes the deletion of a pod: the host pod stops with the same grace period, and after that the
// pod is deleted in the space.
func handlePodDeletion(ctx context.Context, k *engine.Resource[*corev1.Pod], v, host *corev1.Pod, exists bool) error {
	if !exists {
		// The watch may be behind, so the API decides whether the pod is gone.
		var err error
		if host, exists, err = hostPodOf(ctx, k, v); err != nil {
			return err
		}
	}
	if !exists {
		return k.VirtualAPI.Delete(ctx, v, client.Preconditions{UID: &v.UID}, client.GracePeriodSeconds(0))
	}
	grace := pod.Grace(v)
	if host.DeletionTimestamp == nil || grace < ptr.Deref(host.DeletionGracePeriodSeconds, 0) {
		return k.HostAPI.Delete(ctx, host, client.Preconditions{UID: &host.UID}, client.GracePeriodSeconds(grace))
	}
	var status corev1.PodStatus
	k.Compute(ctx, func() { status = pod.PullStatus(k.Space, v, host) })
	if equality.Semantic.DeepEqual(status, v.Status) {
		return nil
	}
	out := v.DeepCopy()
	out.Status = status
	return k.VirtualAPI.Status().Update(ctx, out)
}

// reportPodRefusal reports in the pod's conditions why it is not scheduled.
func (s *Syncer) reportPodRefusal(ctx context.Context, v *corev1.Pod, r engine.Refusal) error {
	if v.Spec.NodeName != "" {
		return nil
	}
	want := corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionFalse, Reason: r.Reason, Message: r.Message}
	out := v.DeepCopy()
	i := slices.IndexFunc(out.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == want.Type })
	if i < 0 {
		out.Status.Conditions = append(out.Status.Conditions, corev1.PodCondition{})
		i = len(out.Status.Conditions) - 1
	}
	have := &out.Status.Conditions[i]
	if have.Status == want.Status && have.Reason == want.Reason {
		return nil // the amounts in the message change with every try
	}
	want.LastTransitionTime = metav1.NewTime(s.Clock.Now())
	*have = want
	return s.VirtualAPI.Status().Update(ctx, out)
}

func compareNames(a, b client.Object) int { return strings.Compare(a.GetName(), b.GetName()) }

// enqueueReferences enqueues the objects that a pod refers to, after it was added, changed, or deleted.
func (s *Syncer) enqueueReferences(v *corev1.Pod, enqueue func(engine.Key)) {
	refs := pod.ReferencesOf(v)
	s.Refer(resources.ConfigMaps, refs.ConfigMaps, enqueue)
	s.Refer(resources.Secrets, refs.Secrets, enqueue)
}

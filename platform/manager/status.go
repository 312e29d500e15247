// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package manager

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/isolation"
	"github.com/berth-dev/berth/shard"
	"github.com/berth-dev/berth/translate"
)

// maxMessage bounds the message of a condition, in bytes.
const maxMessage = 2 << 10

// writeStatus has the status of an object say how its space is, and failure, if it is not nil, why the space is not as
// the object says.
func (m *Manager) writeStatus(ctx context.Context, object *v1alpha1.Space, failure error) error {
	m.recordRefusals(ctx, object)
	updated := object.DeepCopy()
	m.observe(&updated.Status, object, failure)
	if err := m.observeQuota(ctx, &updated.Status, object.Name); err != nil {
		return err
	}
	m.observeNamespaces(ctx, object.Name, &updated.Status)
	m.observeReplica(&updated.Status, object.Name)
	if equality.Semantic.DeepEqual(object.Status, updated.Status) {
		return nil
	}
	err := m.objects.Client.Status().Patch(ctx, updated, client.MergeFrom(object))
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("write status of Space object %s: %w", object.Name, err)
	}
	return nil
}

// observe notes in a status how the space of an object is.
func (m *Manager) observe(status *v1alpha1.SpaceStatus, object *v1alpha1.Space, failure error) {
	if status.Shard == "" && m.config.Shard != "" {
		status.Shard = m.config.Shard
	}
	status.Endpoint, status.Version = m.env.Endpoint(object.Name), m.config.Version.Kubernetes
	if applied := m.applied.get(object.Name); applied != nil {
		status.ObservedGeneration = applied.Generation
		status.Isolation = cmp.Or(applied.Spec.Isolation, v1alpha1.Shared)
	}
	live, there := m.Status(object.Name)
	if !there {
		live.Conditions = []metav1.Condition{{
			Type: v1alpha1.ConditionReady, Status: metav1.ConditionFalse, Reason: string(v1alpha1.SpacePending), Message: "the space is being prepared",
		}}
	}
	// The process of a dedicated space says nothing of what the platform alone knows.
	live.Conditions = slices.DeleteFunc(live.Conditions, conditionOfPlatform)
	if isolated, ok := m.repairs.Condition(object.Name, status.Conditions); ok {
		live.Conditions = append(live.Conditions, isolated)
	}
	m.observeShare(status, object)
	if volume := m.volumeCondition(object.Name); volume != nil {
		live.Conditions = append(live.Conditions, *volume)
	} else {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.ConditionVolumeCurrent)
	}
	for _, condition := range live.Conditions {
		if condition.Type == v1alpha1.ConditionReady {
			status.State = stateOf(condition.Reason)
			if before := meta.FindStatusCondition(status.Conditions, v1alpha1.ConditionReady); failure == nil && condition.Status == metav1.ConditionUnknown &&
				before != nil && before.Status == metav1.ConditionTrue {
				continue // it ran when the last process ended, and nothing else is known
			}
			condition = withFailure(condition, failure)
			if failure != nil && !there && !errors.Is(failure, errPaused) {
				status.State = v1alpha1.SpaceFailed
			}
		}
		condition.ObservedGeneration = object.Generation
		if len(condition.Message) > maxMessage {
			condition.Message = strings.ToValidUTF8(condition.Message[:maxMessage], "") + " ..."
		}
		meta.SetStatusCondition(&status.Conditions, condition)
	}
	status.Conditions = slices.DeleteFunc(status.Conditions, unknownCondition)
}

// conditionOfPlatform tells whether the platform itself, and not the process of a space, says what a condition is.
func conditionOfPlatform(c metav1.Condition) bool {
	return slices.Contains([]string{v1alpha1.ConditionIsolated, v1alpha1.ConditionWithinShare, v1alpha1.ConditionVolumeCurrent, v1alpha1.ConditionReplicated}, c.Type)
}

// unknownCondition tells whether a space has no such condition. One that the process of a dedicated space added, when
// somebody had taken it over, would otherwise stay.
func unknownCondition(c metav1.Condition) bool {
	return !conditionOfPlatform(c) && !slices.Contains([]string{
		v1alpha1.ConditionReady, v1alpha1.ConditionHostReachable, v1alpha1.ConditionStoreHealthy, v1alpha1.ConditionSynced,
	}, c.Type)
}

// withFailure returns the condition Ready of a space that could not be reconciled.
func withFailure(ready metav1.Condition, failure error) metav1.Condition {
	if failure == nil {
		return ready
	}
	if errors.Is(failure, errStaysDedicated) { // and runs as before
		stays := failure.Error()
		if ready.Status != metav1.ConditionTrue && ready.Message != "" {
			stays = ready.Message + "; " + stays
		}
		ready.Message = stays
		return ready
	}
	ready.Status, ready.Message, ready.LastTransitionTime = metav1.ConditionFalse, failure.Error(), metav1.Time{}
	invalid, orphaned := (*invalidSpec)(nil), (*orphanedStore)(nil)
	switch {
	case errors.Is(failure, errStoreMissing):
		ready.Reason = v1alpha1.ReasonStoreMissing
	case errors.As(failure, &invalid):
		ready.Reason = v1alpha1.ReasonInvalidSpec
	case errors.As(failure, &orphaned):
		ready.Reason = v1alpha1.ReasonOrphanedStore
	case errors.Is(failure, errPaused):
		ready.Reason = v1alpha1.ReasonPaused
	default:
		ready.Reason = string(v1alpha1.SpaceFailed)
	}
	return ready
}

// stateOf is the state of a space whose condition Ready has a reason.
func stateOf(reason string) v1alpha1.SpaceState {
	switch reason {
	case shard.ReasonHostUnreachable:
		return v1alpha1.SpaceRunning
	case shard.ReasonCrashSuspect:
		return v1alpha1.SpaceFailed
	default:
		return v1alpha1.SpaceState(reason)
	}
}

// observeQuota notes in a status what the space uses, and how much it may use. It is read from the host only if it has changed, and noted
// each time: the object may be older than the last status that was written.
func (m *Manager) observeQuota(ctx context.Context, status *v1alpha1.SpaceStatus, name string) error {
	seen := m.quotas.seen(name)
	if m.quotas.take(name) || seen == nil && status.State == v1alpha1.SpaceRunning {
		read, err := m.readQuota(ctx, name)
		if err != nil {
			m.quotas.changed(name)
			return err
		}
		m.quotas.saw(name, read)
		seen = read
	}
	if seen == nil {
		return nil // it is as it was when the last process ended
	}
	if err := m.shares.Recount(ctx, name, seen.Used); err != nil {
		m.logger.Error(err, "Could not have the host count again what a space uses; Berth retries", "space", name)
	}
	status.Quota = *seen.DeepCopy()
	status.Usage = v1alpha1.Usage{
		CPU:    cmp.Or(used(seen, corev1.ResourceLimitsCPU), used(seen, corev1.ResourceRequestsCPU)),
		Memory: cmp.Or(used(seen, corev1.ResourceLimitsMemory), used(seen, corev1.ResourceRequestsMemory)),
	}
	return nil
}

// readQuota reads from the host what a space uses, and how much it may use. The quota on the host has the space's share of the quota of
// its tenant, which grows with what the space uses. So the limit is the tenant's, or that of the space itself.
func (m *Manager) readQuota(ctx context.Context, name string) (*v1alpha1.QuotaStatus, error) {
	if err := m.shares.Check(ctx, name); err != nil {
		return nil, err
	}
	most, err := m.shares.Most(ctx, name)
	if err != nil {
		return nil, err
	}
	quota := &corev1.ResourceQuota{}
	err = m.hostClient.Get(ctx, isolation.QuotaKey(translate.Space{Name: name}), quota)
	if client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("read quota of space %s: %w", name, err)
	}
	if most == nil {
		most = quota.Status.Hard
		delete(most, v1alpha1.ResourceRecount)
	}
	return &v1alpha1.QuotaStatus{Hard: atMost(most), Used: quota.Status.Used}, nil
}

// maxResources is how many resources a status can name. A tenant and a space may name more together.
const maxResources = 200

func atMost(amounts corev1.ResourceList) corev1.ResourceList {
	if len(amounts) <= maxResources {
		return amounts
	}
	amounts = maps.Clone(amounts)
	for _, name := range slices.Sorted(maps.Keys(amounts))[maxResources:] {
		delete(amounts, name)
	}
	return amounts
}

// observeNamespaces notes in a status which namespaces the space has. While it sleeps, they are as they were. It also makes sure that
// the process of a dedicated space has what the space enforces, as a message may be lost, and publications change.
func (m *Manager) observeNamespaces(ctx context.Context, name string, status *v1alpha1.SpaceStatus) {
	has := m.shard.Namespaces(name)
	if process := m.processes.get(name); process != nil && !m.deletions.has(name) {
		m.sendSynced(name)
		said, err := process.Enforce(ctx, m.config.Specs.Access(name).Get())
		if err != nil {
			m.logger.V(1).Info("A dedicated space's process does not say what it enforces; Berth retries", "space", name, "reason", err.Error())
		}
		has = said.Namespaces
	}
	if has != nil {
		status.Namespaces, status.NamespaceCount = has.Names, &has.Count
	}
}

// used is USED/LIMIT of a resource; empty if the quota has no limit of it.
func used(quota *v1alpha1.QuotaStatus, resource corev1.ResourceName) string {
	hard, limited := quota.Hard[resource]
	if !limited {
		return ""
	}
	count := quota.Used[resource]
	return count.String() + "/" + hard.String()
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package quota

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/api/v1alpha1"
)

// AnnotationMark on a ResourceQuota is [SpaceQuota.Mark].
const AnnotationMark = "berth.dev/quota-mark"

// fieldOwner is the field manager of quotas and ledgers.
const fieldOwner = client.FieldOwner("berth-quota")

// Host is the [Store] on the host: QuotaLedger objects, and the ResourceQuotas of spaces.
type Host struct {
	client client.Client
	quota  func(space string) *corev1.ResourceQuota
}

// NewHost returns the store of a host. quota returns the ResourceQuota of a space with its namespace, name, and labels, without a spec.
func NewHost(host *rest.Config, quota func(space string) *corev1.ResourceQuota) (*Host, error) {
	scheme := runtime.NewScheme()
	if err := errors.Join(v1alpha1.AddToScheme(scheme), corev1.AddToScheme(scheme)); err != nil {
		return nil, fmt.Errorf("make client of quotas: %w", err)
	}
	mapper := meta.NewDefaultRESTMapper(nil)
	mapper.Add(v1alpha1.GroupVersion.WithKind("QuotaLedger"), meta.RESTScopeRoot)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("ResourceQuota"), meta.RESTScopeNamespace)
	config := rest.CopyConfig(host)
	config.QPS = -1 // the host's API priority and fairness limits the requests
	config.ContentType, config.AcceptContentTypes = "", ""
	c, err := client.New(config, client.Options{Scheme: scheme, Mapper: mapper})
	if err != nil {
		return nil, fmt.Errorf("make client of quotas: %w", err)
	}
	return &Host{client: c, quota: quota}, nil
}

// Ledger implements [Store].
func (h *Host) Ledger(ctx context.Context, tenant string) (*Ledger, error) {
	object := &v1alpha1.QuotaLedger{}
	if err := h.client.Get(ctx, client.ObjectKey{Name: tenant}, object); err != nil {
		return nil, failure(err, "read the quota ledger of tenant "+tenant)
	}
	ledger := &Ledger{
		Tenant: tenant, Parent: object.Spec.Parent, Limit: object.Spec.Limit, Allotted: object.Status.Allotted, Mark: object.Status.Mark,
		Shares: map[Holder]Share{}, Version: object.ResourceVersion, object: object,
	}
	for _, share := range object.Status.Shares {
		ledger.Shares[Holder{share.Kind, share.Name}] = Share{Reserved: share.Reserved, Lowering: share.Lowering, Mark: share.Mark}
	}
	return ledger, nil
}

// UpdateLedger implements [Store].
func (h *Host) UpdateLedger(ctx context.Context, l *Ledger) error {
	object := l.object.DeepCopy()
	object.Status = v1alpha1.QuotaLedgerStatus{Allotted: l.Allotted, Mark: l.Mark}
	for _, holder := range l.holders() {
		share := l.Shares[holder]
		object.Status.Shares = append(object.Status.Shares, v1alpha1.QuotaShare{
			Kind: holder.Kind, Name: holder.Name, Reserved: withoutZeros(share.Reserved), Lowering: share.Lowering, Mark: share.Mark,
		})
	}
	return failure(h.client.Status().Update(ctx, object, fieldOwner), "write the quota ledger of tenant "+l.Tenant)
}

// SpaceQuota implements [Store].
func (h *Host) SpaceQuota(ctx context.Context, space string) (*SpaceQuota, error) {
	quota := h.quota(space)
	if err := h.client.Get(ctx, client.ObjectKeyFromObject(quota), quota); err != nil {
		return nil, failure(err, "read the quota of space "+space)
	}
	read := &SpaceQuota{Space: space, Hard: maps.Clone(quota.Spec.Hard), Used: maps.Clone(quota.Status.Used), Mark: quota.Annotations[AnnotationMark], Version: quota.ResourceVersion}
	if read.Used == nil {
		read.Used = Amounts{}
	}
	delete(read.Hard, v1alpha1.ResourceRecount)
	read.names = slices.Collect(maps.Keys(read.Hard))
	for name, hard := range read.Hard {
		if enforced, is := quota.Status.Hard[name]; is && enforced.Cmp(hard) > 0 { // the host lets the space use that until its status says otherwise
			read.Hard[name] = enforced
		}
		if _, counted := read.Used[name]; !counted {
			read.Used[name] = read.Hard[name]
		}
	}
	return read, nil
}

// UpdateSpaceQuota implements [Store]. The host enforces what the status of a ResourceQuota says. Its controller copies it from the spec
// within a moment, but that may be too late for who lowers it, and too slow for who raises it.
func (h *Host) UpdateSpaceQuota(ctx context.Context, q *SpaceQuota) error {
	quota := h.quota(q.Space)
	if q.Version == "" {
		quota.Spec.Hard = q.Hard
		if q.Mark != "" {
			quota.Annotations = map[string]string{AnnotationMark: q.Mark}
		}
		return failure(h.client.Create(ctx, quota, fieldOwner), "create the quota of space "+q.Space)
	}
	hard := map[string]any{}
	for _, name := range q.names {
		hard[string(name)] = nil // unless it stays
	}
	for name, amount := range q.Hard {
		hard[string(name)] = amount
	}
	metadata := map[string]any{"resourceVersion": q.Version, "labels": quota.Labels}
	if q.Mark != "" {
		metadata["annotations"] = map[string]string{AnnotationMark: q.Mark}
	}
	patch, err := merge(map[string]any{"metadata": metadata, "spec": map[string]any{"hard": hard}})
	if err == nil {
		err = h.client.Patch(ctx, quota, patch, fieldOwner)
	}
	if err != nil {
		return failure(err, "change the quota of space "+q.Space)
	}
	enforced := Amounts{}
	for _, name := range slices.Collect(maps.Keys(q.Hard)) {
		if _, counted := quota.Status.Used[name]; counted { // otherwise, the controller counts first
			enforced[name] = q.Hard[name]
		}
	}
	if same(only(quota.Status.Hard, enforced), enforced) {
		return nil
	}
	patch, err = merge(map[string]any{
		"metadata": map[string]any{"resourceVersion": quota.ResourceVersion}, "status": map[string]any{"hard": enforced},
	})
	if err == nil {
		err = h.client.Status().Patch(ctx, quota, patch, fieldOwner)
	}
	return failure(err, "change the quota of space "+q.Space)
}

// Recount has the host count again what a space uses. Its controller counts what is in its cache, also when pods come that admission has
// counted already, and that it doesn't know yet. Then it counts too little until something else has it count, such as this.
func (h *Host) Recount(ctx context.Context, space string) error {
	quota := h.quota(space)
	if err := h.client.Get(ctx, client.ObjectKeyFromObject(quota), quota); err != nil {
		return failure(err, "read the quota of space "+space)
	}
	count := quota.Spec.Hard[v1alpha1.ResourceRecount]
	next := resource.NewQuantity(count.Value()%1000+1, resource.DecimalSI)
	patch, err := merge(map[string]any{
		"metadata": map[string]any{"resourceVersion": quota.ResourceVersion},
		"spec":     map[string]any{"hard": map[string]any{string(v1alpha1.ResourceRecount): next}},
	})
	if err == nil {
		err = h.client.Patch(ctx, quota, patch, fieldOwner)
	}
	return failure(err, "have the host count again what space "+space+" uses")
}

// merge returns a merge patch.
func merge(change map[string]any) (client.Patch, error) {
	data, err := json.Marshal(change)
	if err != nil {
		return nil, fmt.Errorf("encode quota: %w", err)
	}
	return client.RawPatch(types.MergePatchType, data), nil
}

// failure is an error of the host, as a [Store] returns it.
func failure(err error, doing string) error {
	switch {
	case err == nil:
		return nil
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%s: %w", doing, errors.Join(ErrNotFound, err))
	case apierrors.IsConflict(err), apierrors.IsAlreadyExists(err):
		return fmt.Errorf("%s: %w", doing, errors.Join(ErrConflict, err))
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%s: %w", doing, errors.Join(ErrForbidden, err))
	default:
		return fmt.Errorf("%s: %w", doing, err)
	}
}

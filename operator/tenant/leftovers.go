// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenant

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/translate"
)

const (
	// leftoversInterval is how often shares are looked through.
	leftoversInterval = 5 * time.Minute
	// ledgersPage is how many ledgers are read at once. One can have a megabyte.
	ledgersPage = 20
)

// leftovers removes shares of quotas, and ledgers, of what doesn't exist. They are removed with a Space
// or a Tenant that is deleted. What is left is of objects that were removed by force, without their finalizers, or of a platform that
// doesn't exist any more.
type leftovers struct {
	cached, live client.Reader
	client       client.Client
	logger       logr.Logger
}

// SetUpLeftovers has a manager remove what is left in quota ledgers.
func SetUpLeftovers(m manager.Manager) error {
	l := &leftovers{cached: m.GetCache(), live: m.GetAPIReader(), client: m.GetClient(), logger: m.GetLogger()}
	err := m.Add(manager.RunnableFunc(func(ctx context.Context) error {
		wait.JitterUntilWithContext(ctx, func(ctx context.Context) {
			if err := l.remove(ctx); err != nil && ctx.Err() == nil {
				l.logger.Error(err, "Could not remove what is left in quota ledgers; Berth retries")
			}
		}, leftoversInterval, 0.2, false)
		return nil
	}))
	if err != nil {
		return fmt.Errorf("set up the removal of what is left in quota ledgers: %w", err)
	}
	return nil
}

func (l *leftovers) remove(ctx context.Context) error {
	list := &v1alpha1.QuotaLedgerList{}
	var failures []error
	for {
		if err := l.live.List(ctx, list, client.Limit(ledgersPage), client.Continue(list.Continue)); err != nil {
			return errors.Join(append(failures, fmt.Errorf("list quota ledgers: %w", err))...)
		}
		for i := range list.Items { // one that is changed at this moment is looked through the next time
			if err := l.removeFrom(ctx, &list.Items[i]); err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
				failures = append(failures, err)
			}
		}
		if list.Continue == "" {
			return errors.Join(failures...)
		}
	}
}

// removeFrom removes from a ledger the shares of holders that are gone, or the ledger, if its tenant is gone and nobody has a share.
func (l *leftovers) removeFrom(ctx context.Context, ledger *v1alpha1.QuotaLedger) error {
	var freed []string
	left := make([]v1alpha1.QuotaShare, 0, len(ledger.Status.Shares))
	for _, share := range ledger.Status.Shares {
		holder := l.spaceGone
		if share.Kind == v1alpha1.TenantHolder {
			holder = l.tenantGone
		}
		gone, err := holder(ctx, share.Name)
		if err != nil {
			return err
		}
		if gone {
			freed = append(freed, string(share.Kind)+"/"+share.Name)
		} else {
			left = append(left, share)
		}
	}
	if len(freed) > 0 {
		ledger.Status.Shares = left
		if err := l.client.Status().Update(ctx, ledger, fieldOwner); err != nil {
			return fmt.Errorf("free shares of the quota of tenant %s: %w", ledger.Name, err)
		}
		l.logger.Info("Freed shares of a quota, because their holders don't exist", "ledger", ledger.Name, "holders", freed)
	}
	if len(left) > 0 {
		return nil
	}
	if unused, err := l.unused(ctx, ledger.Name); err != nil || !unused {
		return err
	}
	if err := l.client.Delete(ctx, ledger, client.Preconditions{UID: &ledger.UID, ResourceVersion: &ledger.ResourceVersion}); err != nil {
		return fmt.Errorf("delete the quota ledger of tenant %s: %w", ledger.Name, err)
	}
	l.logger.Info("Deleted a quota ledger, because its tenant doesn't exist", "ledger", ledger.Name)
	return nil
}

// spaceGone reports whether nothing is left of a space. As long as its namespace is there, its pods may run.
func (l *leftovers) spaceGone(ctx context.Context, name string) (bool, error) {
	if gone, err := l.gone(ctx, &v1alpha1.Space{}, name); err != nil || !gone {
		return false, err
	}
	namespace := &metav1.PartialObjectMetadata{}
	namespace.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("Namespace"))
	return missing(l.live.Get(ctx, client.ObjectKey{Name: translate.Space{Name: name}.HostNamespace()}, namespace))
}

// tenantGone reports whether nothing is left of a tenant. As long as its ledger is there, its spaces may have shares of it.
func (l *leftovers) tenantGone(ctx context.Context, name string) (bool, error) {
	if gone, err := l.gone(ctx, &v1alpha1.Tenant{}, name); err != nil || !gone {
		return false, err
	}
	return missing(l.live.Get(ctx, client.ObjectKey{Name: name}, &v1alpha1.QuotaLedger{}))
}

// unused reports whether a tenant doesn't exist and no space names it.
func (l *leftovers) unused(ctx context.Context, name string) (bool, error) {
	if gone, err := l.gone(ctx, &v1alpha1.Tenant{}, name); err != nil || !gone {
		return false, err
	}
	list, err := spaces(ctx, l.cached, name)
	return len(list) == 0, err
}

// gone reports whether an object exists neither in the cache nor on the host.
func (l *leftovers) gone(ctx context.Context, object client.Object, name string) (bool, error) {
	if gone, err := missing(l.cached.Get(ctx, client.ObjectKey{Name: name}, object)); err != nil || !gone {
		return false, err
	}
	return missing(l.live.Get(ctx, client.ObjectKey{Name: name}, object))
}

// missing reports whether an object was not found.
func missing(err error) (bool, error) {
	if apierrors.IsNotFound(err) {
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("read the holder of a share: %w", err)
	}
	return false, nil
}

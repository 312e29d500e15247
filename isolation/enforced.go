// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package isolation

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-dev/berth/isolation/hostpolicy"
	"github.com/berth-dev/berth/translate"
)

// enforcedPoll is how often [WaitEnforced] asks the host.
const enforcedPoll = 50 * time.Millisecond

// WaitEnforced waits until the host enforces [PodPolicy] and [AccountPolicy] for a
// space's account: it takes policies up some moments after they were made, and
// until then would let the account do all that RBAC grants. account is a client
// that impersonates the account of the space, whose isolation objects exist. It
// writes nothing. When ctx ends before, the error says which policy is not in force.
func WaitEnforced(ctx context.Context, account client.Client, space translate.Space) error {
	at := metav1.ObjectMeta{Namespace: space.HostNamespace(), Name: "berth-probe"} // not what a syncer makes: it has no label
	for _, probe := range []client.Object{                                         // one of each policy's
		&corev1.Pod{ObjectMeta: at, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "probe", Image: "probe"}}}},
		&corev1.ConfigMap{ObjectMeta: at},
	} {
		last := errors.New("it would let the space's account make anything")
		err := wait.PollUntilContextCancel(ctx, enforcedPoll, true, func(ctx context.Context) (bool, error) {
			err := account.Create(ctx, probe.DeepCopyObject().(client.Object), client.DryRunAll)
			if apierrors.IsForbidden(err) && strings.Contains(err.Error(), hostpolicy.NotOurs) {
				return true, nil
			}
			if err != nil && ctx.Err() == nil { // another policy's, or none has the right yet: these say nothing of ours
				last = err
			}
			return false, nil
		})
		if err != nil {
			return fmt.Errorf("the host does not enforce Berth's policy for spaces' accounts on a %T: %w", probe, last)
		}
	}
	return nil
}

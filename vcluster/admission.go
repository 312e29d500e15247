// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package vcluster

import (
	"context"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apiserver/pkg/admission"
)

// guardedAdmission is upstream's chain of admission plugins, behind a latch. A
// request whose client has gone goes on inside the server, unseen; had the
// quota plugin's workers ended before it comes to them, it would stay ten
// seconds.
type guardedAdmission struct {
	next  admission.Interface
	calls *latch
}

func (g *guardedAdmission) Handles(op admission.Operation) bool { return g.next.Handles(op) }

func (g *guardedAdmission) Admit(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	next, ok := g.next.(admission.MutationInterface)
	if !ok {
		return nil
	}
	if !g.calls.enter() {
		return apierrors.NewServiceUnavailable(errStopping.Error())
	}
	defer g.calls.leave()
	return next.Admit(ctx, a, o)
}

func (g *guardedAdmission) Validate(ctx context.Context, a admission.Attributes, o admission.ObjectInterfaces) error {
	next, ok := g.next.(admission.ValidationInterface)
	if !ok {
		return nil
	}
	if !g.calls.enter() {
		return apierrors.NewServiceUnavailable(errStopping.Error())
	}
	defer g.calls.leave()
	return next.Validate(ctx, a, o)
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/gateway/resolve"
	"github.com/berth-dev/berth/identity"
	"github.com/berth-dev/berth/internal/httpstatus"
	"github.com/berth-dev/berth/internal/safego"
)

// identityInterval is how often it is checked that the client of a request that lasts is still known.
const identityInterval = 30 * time.Second

// unknownFor is how long a request lasts while it can't be checked who its client is.
const unknownFor = 10 * time.Minute

// identify returns who makes a request, if the platform knows it, and the request with that identity, without the credential.
func (g *Router) identify(r *http.Request) (*http.Request, *identity.Identity, error) {
	if g.Identify == nil {
		return r, nil, nil
	}
	who, err := g.Identify(r)
	if err != nil || who == nil {
		return r, nil, err
	}
	// Watches, exec, and port forwarding may last for days: longer than the credential is good.
	pause, known := cmp.Or(g.IdentifyAgain, identityInterval), time.Now()
	ctx := safego.While(identity.With(r.Context(), who), pause, "check who a client is", func() (time.Duration, bool) {
		again, err := g.Identify(r)
		if statusOf(err) != nil {
			return pause, time.Since(known) < unknownFor
		}
		known = time.Now()
		return pause, err == nil && reflect.DeepEqual(again, who)
	})
	identified := r.Clone(ctx)
	identified.Header.Del("Authorization")
	return identified, who, nil
}

// mayReach reports whether a client may use a space at all: one of its tenant, or any if it is a system user (Z1, Z2). Whether there is
// such a space makes no difference to others.
func (g *Router) mayReach(who *identity.Identity, space string) bool {
	return who.Tenant == resolve.System || who.Tenant != "" && g.tenantOf(space) == who.Tenant
}

// tenantOf returns the tenant of a space; "" if it has none.
func (g *Router) tenantOf(space string) string {
	if g.TenantOf == nil {
		return ""
	}
	return g.TenantOf(space)
}

// statusOf returns the status of an error that says that it isn't known now who a client is; nil for others.
func statusOf(err error) *metav1.Status {
	status := apierrors.APIStatus(nil)
	if !errors.As(err, &status) {
		return nil
	}
	said := status.Status()
	return &said
}

// refuseIdentity responds to a client that has proved who it is, and may not use the platform as that, or whose credential can't be checked
// now.
func refuseIdentity(w http.ResponseWriter, err error) {
	closeAfter(w)
	if status := statusOf(err); status != nil {
		after, _ := apierrors.SuggestsClientDelay(err)
		httpstatus.Write(w, int(status.Code), status.Reason, status.Message, time.Duration(after)*time.Second)
		return
	}
	httpstatus.Write(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, err.Error(), 0)
}

// refuseTenant responds to a client of another tenant. It is the same response for all spaces that aren't of the client's tenant.
func refuseTenant(w http.ResponseWriter, who *identity.Identity, space string) {
	closeAfter(w)
	httpstatus.Write(w, http.StatusForbidden, metav1.StatusReasonForbidden, fmt.Sprintf(
		"you are %q of the tenant %s, and the space %.100q is not one of that tenant; use a path without /tenants/ or /spaces/ for your tenant's own space", who.Name, who.Tenant, space), 0)
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"reflect"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/audit"

	"github.com/berth-dev/berth/gateway/resolve"
	"github.com/berth-dev/berth/identity"
	"github.com/berth-dev/berth/internal/httpstatus"
	"github.com/berth-dev/berth/internal/safego"
)

// identityInterval is how often it is checked that the client of a request that lasts is still known.
const identityInterval = 30 * time.Second

// unknownFor is how long a request lasts while it can't be checked who its client is.
const unknownFor = 10 * time.Minute

// identify returns who makes a request, if the platform knows it.
func (g *Router) identify(r *http.Request) (*identity.Identity, error) {
	if g.Identify == nil {
		return nil, nil
	}
	return g.Identify(r)
}

// identified returns the request of a client that the platform knows, with that identity and without the credential. It ends once the
// client is somebody else.
func (g *Router) identified(r *http.Request, who *identity.Identity) *http.Request {
	if who == nil {
		return r
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
	identified := r.WithContext(ctx)
	identified.Header = maps.Clone(r.Header)
	identified.Header.Del("Authorization")
	return identified
}

// isOf reports whether a client uses a space as itself: one of its tenant, or any if it is a system user (Z1, Z2).
func (g *Router) isOf(who *identity.Identity, space string) bool {
	return who.Tenant == resolve.System || who.Tenant != "" && g.tenantOf(space) == who.Tenant
}

// visit returns the request of a client as it reaches a space of another tenant: as a visitor, if the space gives it rights (Z4, Z5), and
// otherwise nil. Whether there is such a space makes no difference.
func (g *Router) visit(r *http.Request, who *identity.Identity, space string) *http.Request {
	if who.Tenant == "" || g.GivesAccess == nil {
		return nil
	}
	visitor := who.AsVisitor()
	if !g.GivesAccess(r.Context(), space, visitor) {
		return nil
	}
	return r.WithContext(identity.With(r.Context(), visitor))
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

// refusingTenant responds to a client of another tenant. It is the same response for all spaces that aren't of the client's tenant.
func refusingTenant(who *identity.Identity, space string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		audit.AddAuditAnnotations(r.Context(), "authorization.k8s.io/decision", "forbid", "berth.dev/refused-space", space)
		closeAfter(w)
		httpstatus.Forbidden(w, r, fmt.Sprintf(
			"you are %q of the tenant %s, and the space %.100q is not one of that tenant, and gives you no access; use a path without /tenants/ or /spaces/ for your tenant's own space", who.Name, who.Tenant, space))
	})
}

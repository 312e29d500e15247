// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package hostproxy serves the API of an existing host cluster to users of the tenant system. It impersonates the user whom the gateway
// has proved, over Berth's own connection. Package platform calls it. It authorizes nothing: the host decides whether Berth may
// impersonate the user, and what the user may do.
package hostproxy

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/authentication/serviceaccount"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/transport"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/identity"
	"github.com/berth-dev/berth/internal/httpstatus"
)

// New returns the handler of the host's API. Its requests must have the identity of the client in their context, and the path that they
// have on the host. It also serves watches and upgrades, which end with the context. It may be called concurrently.
func New(host *rest.Config, logger logr.Logger) (http.Handler, error) {
	config := rest.CopyConfig(host)
	// HTTP/2 has no upgrades. These connections are also apart from those of Berth's own requests, which no user can fill.
	config.NextProtos = []string{"http/1.1"}
	config.DisableCompression = true // bytes are forwarded unchanged
	to, _, err := rest.DefaultServerUrlFor(config)
	if err != nil {
		return nil, fmt.Errorf("read the address of the host: %w", err)
	}
	through, err := rest.TransportFor(config)
	if err != nil {
		return nil, fmt.Errorf("make the transport to the host: %w", err)
	}
	proxy := &httputil.ReverseProxy{
		// Hop-by-hop headers are removed before this is called, and the identity is added after it. So a client can't remove the identity
		// by a Connection header that names it.
		Rewrite: func(r *httputil.ProxyRequest) {
			r.SetURL(to)
			removeClaims(r.Out.Header)
			utilnet.AppendForwardedForHeader(r.Out)
		},
		Transport:      impersonating{through},
		FlushInterval:  -1, // needed for watches
		ModifyResponse: explain,
		ErrorLog:       log.New(io.Discard, "", 0), // clients make them fail as often as they like
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if refused := (*refusedError)(nil); errors.As(err, &refused) {
				httpstatus.Forbidden(w, r, err.Error())
				return
			}
			if r.Context().Err() == nil {
				logger.Error(err, "Could not forward a request of a system user to the host")
			}
			httpstatus.Write(w, http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, "the host can't be reached now; try again later", time.Second)
		},
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		who := identity.From(r.Context())
		switch err := checkUser(host, who); {
		case who == nil:
			httpstatus.Unauthorized(w)
		case err != nil:
			httpstatus.Forbidden(w, r, err.Error())
		case impersonates(r.Header):
			// To ignore it would do with all rights of the user what the user wants to do with those of another one.
			httpstatus.Forbidden(w, r, "users of the tenant system can't impersonate others on the host; remove the impersonation, or use the host itself")
		case hasDots(r.URL.Path):
			httpstatus.Write(w, http.StatusBadRequest, metav1.StatusReasonBadRequest, "the path has a segment of dots; write the path without it", 0)
		default:
			proxy.ServeHTTP(w, r)
		}
	}), nil
}

// checkUser returns why a client can't be impersonated.
func checkUser(host *rest.Config, who *identity.Identity) error {
	switch {
	case who == nil || who.Tenant != v1alpha1.SystemTenant || who.Visitor:
		return errors.New("the host is for users of the tenant system")
	case host.Impersonate.UserName != "":
		// The host would check the rights of the user whom the credential is of, and not of the one whom Berth acts as.
		return errors.New("the kubeconfig with which Berth uses the host impersonates a user, and can't impersonate another one; give Berth a kubeconfig without \"as\"")
	case strings.HasPrefix(who.Name, serviceaccount.ServiceAccountUsernamePrefix):
		// Berth may impersonate the accounts of spaces for its own work.
		return fmt.Errorf("%q is the name of a ServiceAccount; use its token with the host itself", who.Name)
	}
	for _, name := range append([]string{who.Name}, who.Groups...) {
		if !fitsHeader(name) {
			return fmt.Errorf("the name %q of a user or group is empty, or has control characters or spaces at its ends, and can't be impersonated; change the name", name)
		}
	}
	return nil
}

// fitsHeader reports whether the host reads a name as it is from a header. It would read a name of spaces as none, and take the request for
// one of Berth's own.
func fitsHeader(name string) bool {
	return name != "" && strings.TrimSpace(name) == name && !strings.ContainsFunc(name, unicode.IsControl)
}

// hasDots reports whether something on the way could read a path as another one, outside of the host's.
func hasDots(path string) bool {
	return slices.ContainsFunc(strings.Split(path, "/"), func(part string) bool { return part == "." || part == ".." })
}

// impersonation begins the names of the headers by which clients impersonate others.
const impersonation = "impersonate-"

// impersonates reports whether a client asks to act as somebody else.
func impersonates(header http.Header) bool {
	for name := range header {
		if strings.HasPrefix(strings.ToLower(name), impersonation) {
			return true
		}
	}
	return false
}

// removeClaims removes what a client says of who it is, in any form that API servers, or proxies before them, understand.
func removeClaims(header http.Header) {
	for name := range header {
		lower := strings.ToLower(name)
		if lower == "authorization" || lower == "cookie" || strings.HasPrefix(lower, impersonation) || strings.HasPrefix(lower, "x-remote-") {
			delete(header, name)
		}
	}
}

// impersonating adds the name and the groups of the user, with Kubernetes' own round tripper. It adds neither the UID nor the extra fields,
// for each value of which Berth would need a right.
type impersonating struct{ next http.RoundTripper }

// RoundTrip implements [http.RoundTripper].
func (i impersonating) RoundTrip(r *http.Request) (*http.Response, error) {
	who := identity.From(r.Context())
	as := transport.ImpersonationConfig{UserName: who.Name, Groups: who.Groups}
	return transport.NewImpersonatingRoundTripper(as, i.next).RoundTrip(r) //nolint:wrapcheck // as the interface wants it
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package authn

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/oidc"
	certutil "k8s.io/client-go/util/cert"

	"github.com/berth-dev/berth/gateway/resolve"
	"github.com/berth-dev/berth/identity"
	"github.com/berth-dev/berth/internal/clientaddr"
)

const (
	// issuerTimeout limits a request to an issuer, and how long a token's check may take.
	issuerTimeout = 10 * time.Second
	// issuerRequests limits requests to an issuer in a second, and at once. Anybody can send tokens that name a key which is to be fetched.
	issuerRequests, issuerBurst = 5, 10
	// maxDocument limits a document of an issuer, in bytes.
	maxDocument = 1 << 20
	// maxChecks and maxChecksPerClient limit how many tokens of an issuer are checked at once, of all clients and of one.
	maxChecks, maxChecksPerClient = 256, 16
)

// issuer is an OpenID Connect provider. It is safe for concurrent use.
type issuer struct {
	config   apiserver.JWTAuthenticator
	verifier oidc.AuthenticatorTokenWithHealthCheck
	checks   *clientaddr.Counter
	stop     context.CancelFunc
}

// newIssuer returns an issuer whose keys are fetched until ctx ends, or stop is called. It doesn't wait for them.
func newIssuer(ctx context.Context, config apiserver.JWTAuthenticator) (*issuer, error) {
	client, err := issuerClient(config.Issuer.CertificateAuthority)
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	verifier, err := oidc.New(ctx, oidc.Options{JWTAuthenticator: config, Client: client, SupportedSigningAlgs: oidc.AllValidSigningAlgorithms()})
	if err != nil {
		stop()
		return nil, err
	}
	return &issuer{config: config, verifier: verifier, checks: clientaddr.NewCounter(maxChecks, maxChecksPerClient), stop: stop}, nil
}

func issuerClient(ca string) (*http.Client, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if ca != "" {
		roots, err := certutil.NewPoolFromBytes([]byte(ca))
		if err != nil {
			return nil, err
		}
		config.RootCAs = roots
	}
	next := utilnet.SetTransportDefaults(&http.Transport{TLSClientConfig: config})
	return &http.Client{Transport: &boundedTransport{next, rate.NewLimiter(issuerRequests, issuerBurst)}, Timeout: issuerTimeout}, nil
}

// boundedTransport bounds what clients can make of requests to an issuer, and what an issuer can make of its responses.
type boundedTransport struct {
	next    http.RoundTripper
	limiter *rate.Limiter
}

var errTooManyRequests = errors.New("too many requests to the issuer")

// RoundTrip implements [http.RoundTripper].
func (t *boundedTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if !t.limiter.Allow() {
		return nil, errTooManyRequests
	}
	response, err := t.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	response.Body = struct {
		io.Reader
		io.Closer
	}{io.LimitReader(response.Body, maxDocument), response.Body}
	return response, nil
}

// verify returns the user of a token that the issuer has signed. The error is a [*Refused], a status of the API if it isn't known now, or is
// for the admin alone.
func (i *issuer) verify(r *http.Request, token string) (user.Info, error) {
	client := clientaddr.OfRemote(r.RemoteAddr)
	if !i.checks.Take(client) {
		return nil, busy()
	}
	defer i.checks.Give(client)
	ctx, cancel := context.WithTimeout(r.Context(), issuerTimeout)
	defer cancel()
	response, ok, err := i.verifier.AuthenticateToken(ctx, token)
	switch {
	case err == nil && ok:
		return response.User, nil
	case err == nil:
		return nil, errors.New("it is of another issuer")
	case i.verifier.HealthCheck() != nil || strings.Contains(err.Error(), "fetching keys"):
		return nil, unavailable("the keys of your issuer " + i.config.Issuer.URL + " can't be read now")
	case strings.HasPrefix(err.Error(), "oidc: verify token: "):
		return nil, err
	}
	// The issuer has signed the token: the client may know why it isn't enough, such as the message of a validation rule.
	return nil, refused("your token of the issuer %s is refused: %.300s; ask your admin", i.config.Issuer.URL, strings.TrimPrefix(err.Error(), "oidc: "))
}

// checkClaims refuses a token that can't be good, whoever has signed it, so that the client learns why, and nothing is computed or fetched.
func (i *issuer) checkClaims(c claims, now time.Time) error {
	switch {
	case c.Expiry == nil || !now.Before(c.Expiry.Time()):
		return refused("your token of the issuer %s has expired; log in again", i.config.Issuer.URL)
	case !slices.ContainsFunc(i.config.Issuer.Audiences, c.Audience.Contains):
		return refused("your token of the issuer %s is for the audience %.100q, and not for this platform; log in with another client ID", i.config.Issuer.URL, []string(c.Audience))
	}
	return nil
}

// identityOfToken returns who a user of an issuer is.
func identityOfToken(u user.Info, issuer string) (*identity.Identity, error) {
	who := &identity.Identity{Name: u.GetName(), UID: u.GetUID(), Groups: u.GetGroups(), Extra: kept(u.GetExtra()), Proof: identity.OIDC}
	tenants := u.GetExtra()[tenantExtra]
	switch {
	case slices.Equal(u.GetExtra()[systemExtra], []string{"true"}):
		who.Tenant = resolve.System
	case slices.Contains(tenants, resolve.System):
		return nil, refused("your token of the issuer %s names the tenant %s, which needs the mapping %s, too; ask your admin", issuer, resolve.System, systemExtra)
	case len(tenants) > 1:
		return nil, refused("your token of the issuer %s names %d tenants, and may name one; ask your admin", issuer, len(tenants))
	case len(tenants) == 1:
		who.Tenant = tenants[0]
	}
	if err := acceptable(who); err != nil {
		return nil, err
	}
	return who, nil
}

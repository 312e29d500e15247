// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package authn

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
	x509request "k8s.io/apiserver/pkg/authentication/request/x509"
	"k8s.io/apiserver/pkg/server/dynamiccertificates"
	"k8s.io/klog/v2"

	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/gateway/resolve"
	"github.com/berth-dev/berth/identity"
	"github.com/berth-dev/berth/internal/clientaddr"
	"github.com/berth-dev/berth/internal/clientcert"
	"github.com/berth-dev/berth/internal/fielderror"
	"github.com/berth-dev/berth/internal/safego"
)

// Files are paths of files with what clients are known by. Each may be empty. A file that changes is read again, except for
// kubeconfigs of webhooks; while it can't be read, what was read last holds.
type Files struct {
	// ClientCA has the certificates of CAs that sign client certificates, in PEM.
	ClientCA string
	// Tokens has a bearer token in each line, and Passwords a password: CREDENTIAL,USER,UID,"GROUP,...",OTHER...,,TENANT.
	Tokens, Passwords string
	// Issuers has an AuthenticationConfiguration of Kubernetes, with OpenID Connect providers.
	Issuers string
	// Webhook reviews tokens that nobody else has issued.
	Webhook Webhook
	// DefaultTenant is the tenant of users without one; "" if they are refused.
	DefaultTenant string
}

// Authenticator says who clients are. It is safe for concurrent use.
type Authenticator struct {
	exists       func(tenant string) bool
	ca           *dynamiccertificates.DynamicFileCAContent // nil if there is no file
	certificates *clientcert.Verifier
	tokens       *users
	passwords    *users
	issuers      *issuers
	webhook      *reviews
	// defaultTenant is that of users without one; it may be "".
	defaultTenant string
}

// Refused means that a client has proved who it is, and may not use the platform as that. The message says why.
type Refused struct{ message string }

// Error implements [error].
func (r *Refused) Error() string { return r.message }

func refused(format string, args ...any) *Refused { return &Refused{fmt.Sprintf(format, args...)} }

// New reads files. If there is no error, Run must be called. exists reports whether there is a tenant now. The error is a [*fielderror.Error] of the flag with the file.
func New(files Files, exists func(tenant string) bool, logger klog.Logger) (*Authenticator, error) {
	a := &Authenticator{exists: exists, defaultTenant: files.DefaultTenant}
	if files.ClientCA != "" {
		ca, err := dynamiccertificates.NewDynamicCAContentFromFile("client-ca-file", files.ClientCA)
		if err != nil {
			return nil, fielderror.New("client-ca-file", files.ClientCA, "%w; it must have the certificates of CAs, in PEM", err)
		}
		a.ca, a.certificates = ca, clientcert.New(ca.VerifyOptions, x509request.UserConversionFunc(certificateUser))
	}
	var err error
	if a.tokens, err = openUsers(files.Tokens, identity.TokenFile, logger); err != nil {
		return nil, fielderror.New("token-auth-file", files.Tokens, "%w", err)
	}
	if a.passwords, err = openUsers(files.Passwords, identity.PasswordFile, logger); err != nil {
		return nil, fielderror.New("basic-auth-file", files.Passwords, "%w", err)
	}
	if a.issuers, err = openIssuers(files.Issuers, logger); err != nil {
		return nil, fielderror.New("authentication-config", files.Issuers, "%w", err)
	}
	if a.webhook, err = openWebhook(files.Webhook, logger); err != nil {
		return nil, err
	}
	return a, nil
}

// Run reads the files again when they change, until ctx ends.
func (a *Authenticator) Run(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	safego.Go(&group, "follow the file with issuers", func() { a.issuers.run(ctx) }, nil)
	safego.Go(&group, "follow the file with tokens", func() { a.tokens.run(ctx) }, nil)
	safego.Go(&group, "follow the file with passwords", func() { a.passwords.run(ctx) }, nil)
	if a.ca != nil {
		a.ca.Run(ctx, 1)
	}
}

// Identify returns who makes a request, by its certificate, or else its token or password; nil if it has none that is known here. A client
// with a certificate that is known here is nobody else. The error is a [*Refused], or an API status if that can't be said now.
func (a *Authenticator) Identify(r *http.Request) (*identity.Identity, error) {
	who, err := a.known(r)
	if who == nil || err != nil {
		return nil, err
	}
	if who.Tenant == "" {
		of := *who
		of.Tenant, who = a.defaultTenant, &of
	}
	return who, a.check(who)
}

func (a *Authenticator) known(r *http.Request) (*identity.Identity, error) {
	if a.certificates != nil {
		response, ok, err := a.certificates.AuthenticateRequest(r)
		if err != nil {
			return nil, err
		}
		if ok {
			return identityOfCertificate(response), nil
		}
	}
	who, err := a.ofHeader(r)
	certified := r.TLS != nil && len(r.TLS.PeerCertificates) > 0
	if who == nil && err == nil && !certified { // last: it gets only tokens that nobody else knows
		return a.webhook.find(clientaddr.OfRemote(r.RemoteAddr), bearer(r))
	}
	if who != nil && certified {
		// The token or password would reach the space that has issued the certificate.
		return nil, refused("you have a client certificate that the platform doesn't know, and a token or password of the platform; send one of them")
	}
	return who, err
}

// ofHeader returns who has the token or password of a request.
func (a *Authenticator) ofHeader(r *http.Request) (*identity.Identity, error) {
	scheme, credential, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	switch strings.ToLower(scheme) {
	case "bearer":
		token := strings.TrimSpace(credential)
		if who := a.tokens.find("", token); who != nil {
			return who, nil
		}
		return a.issuers.find(r, token)
	case "basic":
		if name, password, ok := r.BasicAuth(); ok {
			return a.passwords.find(name, password), nil
		}
	}
	return nil, nil
}

// bearer returns the token of a request; "" if there is none.
func bearer(r *http.Request) string {
	scheme, token, _ := strings.Cut(r.Header.Get("Authorization"), " ")
	if !strings.EqualFold(scheme, "bearer") {
		return ""
	}
	return strings.TrimSpace(token)
}

// Refuse returns an error if a request has a credential that is known here, for endpoints that are of a space alone: what a client sends
// there reaches the process of the space. It implements [github.com/berth-dev/berth/gateway.Router.Identify].
func (a *Authenticator) Refuse(r *http.Request) (*identity.Identity, error) {
	who, err := a.known(r)
	if statused := apierrors.APIStatus(nil); errors.As(err, &statused) {
		return nil, err // it can't be said now
	}
	if who != nil || err != nil {
		return nil, refused("you have a credential of the platform, and this is the API of a space for its own pods; use the address in your kubeconfig")
	}
	return nil, nil
}

// check refuses identities of tenants that don't exist, and names that mean something to Kubernetes, which only system users may have, or
// to Berth.
func (a *Authenticator) check(who *identity.Identity) error {
	entries := len(who.Groups)
	for _, values := range who.Extra {
		entries += len(values)
	}
	if err := bounds.IdentityGroups.Check(int64(entries)); err != nil { // each is compared with each subject of each binding
		return refused("your credential has too many groups: %s; ask your admin for another credential", err)
	}
	system := who.Tenant == resolve.System
	for _, name := range append([]string{who.Name}, who.Groups...) {
		switch {
		case strings.HasPrefix(name, "berth:"):
			return refused("your credential names the user or group %.100q, and names that begin with berth: are Berth's own; ask your admin for another credential", name)
		case strings.HasPrefix(name, "system:") && !system:
			return refused("your credential names the user or group %.100q, and names that begin with system: are for the tenant %s; ask your admin for another credential", name, resolve.System)
		}
	}
	if system {
		return nil
	}
	if who.Tenant == "" {
		return refused("your credential names no tenant, and the platform has no default tenant; ask your admin to set --default-tenant, or for another credential")
	}
	if problems := validation.IsDNS1123Label(who.Tenant); len(problems) > 0 {
		return refused("your credential names the tenant %.100q: %s; ask your admin for another credential", who.Tenant, problems[0])
	}
	if !a.exists(who.Tenant) {
		return refused("your credential names the tenant %s, which has no space; ask your admin to create the tenant, or for another credential", who.Tenant)
	}
	return nil
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package authn

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apiserver/pkg/apis/apiserver"
	"k8s.io/apiserver/pkg/apis/apiserver/install"
	apiservervalidation "k8s.io/apiserver/pkg/apis/apiserver/validation"
	authenticationcel "k8s.io/apiserver/pkg/authentication/cel"

	"github.com/berth-dev/berth/vcluster/pki"
)

const (
	// tenantExtra is the key of claimMappings.extra with the tenant of a user.
	tenantExtra = berthExtras + "tenant"
	// systemExtra is the key whose value is "true" for users of the tenant system. A value of tenantExtra makes nobody one: a provider may
	// let its users choose a claim.
	systemExtra = berthExtras + "system"
	berthExtras = "berth.dev/"
)

// parseIssuers parses an AuthenticationConfiguration of Kubernetes.
func parseIssuers(data []byte) ([]apiserver.JWTAuthenticator, error) {
	scheme := runtime.NewScheme()
	install.Install(scheme)
	object, err := runtime.Decode(serializer.NewCodecFactory(scheme, serializer.EnableStrict).UniversalDecoder(), data)
	if err != nil {
		return nil, fmt.Errorf("parse it: %w", err)
	}
	config, ok := object.(*apiserver.AuthenticationConfiguration)
	if !ok {
		return nil, fmt.Errorf("it has the kind %s, and must have the kind AuthenticationConfiguration", object.GetObjectKind().GroupVersionKind().Kind)
	}
	return config.JWT, validateIssuers(config).ToAggregate()
}

// validateIssuers validates as Kubernetes does, and refuses what would have no effect here.
func validateIssuers(config *apiserver.AuthenticationConfiguration) field.ErrorList {
	problems := apiservervalidation.ValidateAuthenticationConfiguration(authenticationcel.NewDefaultCompiler(), config, nil)
	if config.Anonymous != nil {
		problems = append(problems, field.Forbidden(field.NewPath("anonymous"), "Berth serves no anonymous requests; remove the field"))
	}
	for i, jwt := range config.JWT {
		at := field.NewPath("jwt").Index(i)
		if jwt.Issuer.EgressSelectorType != "" {
			problems = append(problems, field.Forbidden(at.Child("issuer", "egressSelectorType"), "Berth has no egress selectors; remove the field"))
		}
		if strings.HasPrefix(jwt.Issuer.URL+"/spaces/", pki.Issuer("")) { // or what all spaces had before
			problems = append(problems, field.Invalid(at.Child("issuer", "url"), jwt.Issuer.URL, "it is the issuer of a space, whose tokens are good in that space alone"))
		}
		for j, extra := range jwt.ClaimMappings.Extra {
			if strings.HasPrefix(extra.Key, berthExtras) && extra.Key != tenantExtra && extra.Key != systemExtra {
				problems = append(problems, field.NotSupported(at.Child("claimMappings", "extra").Index(j).Child("key"), extra.Key, []string{tenantExtra, systemExtra}))
			}
		}
	}
	return problems
}

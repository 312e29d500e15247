// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"fmt"
	"net/url"
	"os"

	"k8s.io/apimachinery/pkg/util/validation/field"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit/policy"
	"k8s.io/client-go/util/cert"

	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/internal/fielderror"
)

// usualPolicy records all requests once, when their responses begin or are complete.
func usualPolicy() *auditinternal.Policy {
	return &auditinternal.Policy{Rules: []auditinternal.PolicyRule{{Level: auditinternal.LevelMetadata, OmitStages: []auditinternal.Stage{auditinternal.StageRequestReceived}}}}
}

// Check returns an error for each field of a tenant's settings that is not valid.
func Check(settings *v1alpha1.Audit, at *field.Path) (errs field.ErrorList) {
	if settings == nil {
		return nil
	}
	if _, err := policyOf(settings); err != nil {
		errs = append(errs, field.Invalid(at.Child("policy"), string(settings.Policy.Raw), err.Error()))
	}
	if hook := settings.Webhook; hook.URL != "" {
		u, err := url.Parse(hook.URL)
		if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil {
			errs = append(errs, field.Invalid(at.Child("webhook", "url"), hook.URL, "must be a URL such as https://audit.example.com/berth, without a user"))
		}
		if len(hook.CABundle) > 0 {
			if _, err := cert.ParseCertsPEM(hook.CABundle); err != nil {
				errs = append(errs, field.Invalid(at.Child("webhook", "caBundle"), "<PEM>", err.Error()))
			}
		}
	}
	return errs
}

// policyOf returns the policy of a tenant; nil if it sets none.
func policyOf(settings *v1alpha1.Audit) (*auditinternal.Policy, error) {
	if settings == nil || settings.Policy == nil {
		return nil, nil
	}
	return readPolicy(settings.Policy.Raw)
}

// readPolicyFile reads the policy of the platform. The error is a [*fielderror.Error] of the flag audit-policy-file.
func readPolicyFile(path string) (*auditinternal.Policy, error) {
	if path == "" {
		return usualPolicy(), nil
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fielderror.New("audit-policy-file", path, "%w", err)
	}
	read, err := readPolicy(text)
	if err != nil {
		return nil, fielderror.New("audit-policy-file", path, "%w", err)
	}
	return read, nil
}

// readPolicy reads a policy, whose levels become those that are recorded.
func readPolicy(text []byte) (*auditinternal.Policy, error) {
	read, err := policy.LoadPolicyFromBytes(text)
	if err != nil {
		return nil, fmt.Errorf("%w; it must be a Policy of audit.k8s.io/v1", err)
	}
	for i := range read.Rules {
		if read.Rules[i].Level != auditinternal.LevelNone {
			read.Rules[i].Level = auditinternal.LevelMetadata
		}
	}
	return read, nil
}

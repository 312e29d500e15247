// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"cmp"
	"slices"
	"unicode/utf8"

	authenticationv1 "k8s.io/api/authentication/v1"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
)

// Annotations of events.
const (
	spaceAnnotation      = "berth.dev/space"
	tenantAnnotation     = "berth.dev/tenant"
	userTenantAnnotation = "berth.dev/user-tenant"
	// impersonateAnnotation is the user whom a request asks to impersonate, whether the space allows that or not.
	impersonateAnnotation = "berth.dev/impersonate-user"
)

// What an event may hold of what clients and tenants choose, in bytes, and in entries of a list.
const (
	textMost       = 2 << 10
	entriesMost    = 32
	annotationMost = 16 << 10
)

// annotations are those of a request's events.
type annotations map[string]string

// tenantOfEvent returns the tenant to whom an event counts, or the space if it has none.
func tenantOfEvent(event *auditinternal.Event) string {
	return cmp.Or(event.Annotations[tenantAnnotation], event.Annotations[spaceAnnotation])
}

// bounded returns an event as it is recorded. The event itself stays as it is, because later stages use it.
func (a annotations) bounded(event *auditinternal.Event) *auditinternal.Event {
	e := *event
	e.RequestURI, e.UserAgent = cut(e.RequestURI), cut(e.UserAgent)
	e.User = boundedUser(e.User)
	if e.ImpersonatedUser != nil {
		user := boundedUser(*e.ImpersonatedUser)
		e.ImpersonatedUser = &user
	}
	e.SourceIPs = firstOf(e.SourceIPs)
	e.Annotations = map[string]string{}
	size := 0
	for key, value := range event.Annotations {
		if size += len(key) + len(value); size <= annotationMost {
			e.Annotations[key] = value
		}
	}
	for key, value := range a {
		e.Annotations[key] = cut(value)
	}
	return &e
}

func boundedUser(u authenticationv1.UserInfo) authenticationv1.UserInfo {
	u.Username, u.UID, u.Groups = cut(u.Username), cut(u.UID), firstOf(u.Groups)
	extra := map[string]authenticationv1.ExtraValue{}
	for key, values := range u.Extra {
		if len(extra) < entriesMost {
			extra[cut(key)] = firstOf(values)
		}
	}
	if u.Extra != nil {
		u.Extra = extra
	}
	return u
}

func firstOf[T ~[]string](list T) T {
	list = slices.Clone(list[:min(len(list), entriesMost)])
	for i := range list {
		list[i] = cut(list[i])
	}
	return list
}

// cut shortens a text that is too long. It stays valid UTF-8.
func cut(text string) string {
	if len(text) <= textMost {
		return text
	}
	end := textMost
	for end > 0 && !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package httpstatus writes answers in the form of the Kubernetes API where no API server does: clients show their message,
// and try again when they are asked to. Gateways and handlers in front of API servers use it. It decides nothing.
package httpstatus

import (
	"encoding/json"
	"io"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Write answers with a failure. The client may try again after some time, unless that is zero.
func Write(w http.ResponseWriter, code int, reason metav1.StatusReason, message string, after time.Duration) {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	}
	if after > 0 {
		seconds := int(math.Ceil(after.Seconds()))
		w.Header().Set("Retry-After", strconv.Itoa(seconds))
		status.Details = &metav1.StatusDetails{RetryAfterSeconds: int32(seconds)}
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-cache, private")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(status)
}

// Unauthorized answers a request without a good credential, in the words of upstream's API server.
func Unauthorized(w http.ResponseWriter) {
	Write(w, http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized", 0)
}

// Forbidden answers a request that its client may not make.
func Forbidden(w http.ResponseWriter, r *http.Request, message string) {
	if !readsDiscovery(r) {
		Write(w, http.StatusForbidden, metav1.StatusReasonForbidden, message, 0)
		return
	}
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-cache, private")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusForbidden)
	_, _ = io.WriteString(w, message+"\n")
}

// readsDiscovery reports whether a client is kubectl, or another one with Kubernetes' discovery client, that asks which resources there are.
// Of a failure, that client reads text only: it would show "unknown" in place of the message of an object.
func readsDiscovery(r *http.Request) bool {
	return slices.ContainsFunc(r.Header.Values("Accept"), func(accept string) bool { return strings.Contains(accept, "g=apidiscovery.k8s.io") })
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

// Package httpstatus writes answers in the form of the Kubernetes API where no API server does: clients show their message,
// and try again when they are asked to. Gateways and handlers in front of API servers use it. It decides nothing.
package httpstatus

import (
	"encoding/json"
	"math"
	"net/http"
	"strconv"
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

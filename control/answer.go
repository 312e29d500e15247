// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package control

import (
	"encoding/json"
	"errors"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Answer makes a handler of a function: what it returns is sent as JSON, its
// error as a [metav1.Status], whose code is the error's own if it has one (see
// package apierrors) and else 500.
func Answer(do func(*http.Request) (any, error)) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, err := do(r)
		code := http.StatusOK
		if err != nil {
			status := statusOf(err)
			answer, code = status, int(status.Code)
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		_ = json.NewEncoder(w).Encode(answer) // the client has gone, or it succeeds
	})
}

func statusOf(err error) metav1.Status {
	status := apierrors.NewInternalError(err).Status()
	var known apierrors.APIStatus
	if errors.As(err, &known) && known.Status().Code >= http.StatusBadRequest {
		status = known.Status()
	}
	status.Message = err.Error() // with what was being done, around what the host or a space says
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	return status
}

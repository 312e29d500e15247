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

// Answer makes a handler of a function. The result is sent as JSON. An error is sent as a [metav1.Status], with the
// code of the error if it has one (see package apierrors), and otherwise 500.
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
		_ = json.NewEncoder(w).Encode(answer) // fails only if the client is gone
	})
}

func statusOf(err error) metav1.Status {
	status := apierrors.NewInternalError(err).Status()
	var known apierrors.APIStatus
	if errors.As(err, &known) && known.Status().Code >= http.StatusBadRequest {
		status = known.Status()
	}
	status.Message = err.Error() // includes the context around the error of the host or a space
	status.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}
	return status
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package streams

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-dev/berth/translate/pod"
)

// maxRefusal bounds what is read of the host's answer when it refuses, in bytes.
const maxRefusal = 64 << 10

// notThere says what a kubelet would of a pod that it has not started.
func notThere(v *corev1.Pod) error {
	if v.DeletionTimestamp != nil {
		return apierrors.NewNotFound(corev1.Resource("pods"), v.Name)
	}
	return apierrors.NewBadRequest(fmt.Sprintf("pod %q is waiting to start: it does not run on a node yet", v.Name))
}

func unreachable(v *corev1.Pod) error {
	return apierrors.NewServiceUnavailable(fmt.Sprintf("pod %q cannot be reached now; try again later", v.Name))
}

func stopping() error {
	return apierrors.NewServiceUnavailable("the space is stopping; try again later")
}

func tooMany(most int) error {
	return apierrors.NewTooManyRequests(fmt.Sprintf(
		"%d logs, execs, port forwards and proxied connections are open in this space, which is the most there may be; end some", most), 1)
}

// refused is what the tenant is told of the host's refusal: the host's code and
// words, with nothing of the host in them. Of what has to do with Berth's own
// standing on the host, it is told nothing.
func (s *Streams) refused(resp *http.Response, v, host *corev1.Pod, subresource string) error {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxRefusal))
	if err != nil {
		return unreachable(v)
	}
	message, reason := strings.TrimSpace(string(body)), metav1.StatusReasonUnknown
	status := metav1.Status{}
	if json.Unmarshal(body, &status) == nil && status.Kind == "Status" {
		message, reason = status.Message, status.Reason
	}
	switch {
	case resp.StatusCode == http.StatusUnauthorized, resp.StatusCode == http.StatusForbidden, resp.StatusCode < http.StatusBadRequest:
		s.logger.Error(nil, "Host rejected a request of the space's account", "pod", host.Name, "subresource", subresource, "code", resp.StatusCode, "response", message)
		return unreachable(v)
	case resp.StatusCode == http.StatusTooManyRequests:
		return apierrors.NewTooManyRequests("too many requests; try again later", 1)
	}
	return &apierrors.StatusError{ErrStatus: metav1.Status{
		Status:  metav1.StatusFailure,
		Code:    int32(resp.StatusCode), // three digits: net/http has read them
		Reason:  reason,
		Message: pod.Scrub(s.space, message, v, host),
		Details: &metav1.StatusDetails{Kind: "pods", Name: v.Name},
	}}
}

// Said is what the host says in the middle of a stream of v's, in the space's
// words.
func (s *Streams) Said(v *corev1.Pod, message string) string {
	host, ok := s.host.Pod(s.space, v)
	if !ok {
		return fmt.Sprintf("pod %q is not there any more", v.Name)
	}
	return pod.Scrub(s.space, message, v, host)
}

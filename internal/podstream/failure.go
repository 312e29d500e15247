// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package podstream

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/remotecommand"
)

// failure is what a client is told of what the host said on an error stream (N1).
// It is empty if the client's protocol has no word for it.
func (c *Call) failure(s *stream, said []byte) []byte {
	if c.Forward {
		return []byte(fmt.Sprintf("error forwarding port %d to pod %s: %s", s.port, c.Pod, reason(string(said))))
	}
	if !c.socket && c.protocol != remotecommand.StreamProtocolV4Name {
		return []byte(c.Said(string(said))) // so it was said
	}
	status := c.status(said)
	if c.protocol != remotecommand.StreamProtocolV4Name && c.protocol != remotecommand.StreamProtocolV5Name && c.protocol != "v4.base64.channel.k8s.io" {
		return []byte(status.Message)
	}
	text, err := json.Marshal(status)
	if err != nil {
		return nil
	}
	return text
}

// reason is why a port was not reached. Container runtimes say it with the names
// of their sandboxes, and how they look for it.
func reason(said string) string {
	for _, known := range []string{"connection refused", "timed out", lost} {
		if strings.Contains(said, known) {
			return known
		}
	}
	return "the pod cannot be reached"
}

// status is what the host says of how a command ended, by the version of which
// it was asked.
func (c *Call) status(said []byte) metav1.Status {
	status := metav1.Status{}
	if json.Unmarshal(said, &status) != nil || status.Status == "" {
		return internal(c.Said(string(said)))
	}
	out := metav1.Status{Status: status.Status, Reason: status.Reason, Code: status.Code}
	if status.Status == metav1.StatusSuccess {
		return out
	}
	out.Message = c.Said(status.Message)
	if status.Details != nil {
		out.Details = &metav1.StatusDetails{}
		for _, cause := range status.Details.Causes {
			message := cause.Message
			if _, err := strconv.ParseUint(message, 10, 8); err != nil || cause.Type != remotecommand.ExitCodeCauseType {
				message = c.Said(message) // which may not know the pod any more; a code needs no words
			}
			out.Details.Causes = append(out.Details.Causes, metav1.StatusCause{Type: cause.Type, Message: message})
		}
	}
	return out
}

func internal(message string) metav1.Status {
	return metav1.Status{
		Status: metav1.StatusFailure, Reason: metav1.StatusReasonInternalError, Code: http.StatusInternalServerError, Message: message,
		Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Message: message}}},
	}
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package hostproxy

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"github.com/berth-dev/berth/identity"
)

// maxStatus is how many bytes of a refusal are read, to find out whether it is about Berth's right.
const maxStatus = 64 << 10

// refusedError is why the host doesn't let Berth impersonate a user.
type refusedError struct {
	who *identity.Identity
	// message is that of the host.
	message string
}

// Error implements [error].
func (e *refusedError) Error() string {
	return fmt.Sprintf("the host doesn't let Berth impersonate the user %q with the groups %q; an admin of the host has to give Berth's account the right to do so: "+
		"clients.systemUsers and clients.systemGroups of the chart, or a ClusterRole with the verb impersonate and resourceNames; the host says: %s", e.who.Name, e.who.Groups, e.message)
}

// explain returns an error in place of a response of the host that is about Berth and not about the user.
func explain(resp *http.Response) error {
	switch resp.StatusCode {
	case http.StatusUnauthorized: // the client would get another credential, which is not what is wrong
		return errors.New("the host refuses Berth's own credential")
	case http.StatusForbidden:
		return explainForbidden(resp)
	}
	return nil
}

func explainForbidden(resp *http.Response) error {
	start, err := io.ReadAll(io.LimitReader(resp.Body, maxStatus))
	if err != nil {
		return fmt.Errorf("read the response of the host: %w", err)
	}
	if object, _, err := scheme.Codecs.UniversalDeserializer().Decode(start, nil, nil); err == nil {
		if status, ok := object.(*metav1.Status); ok && strings.Contains(status.Message, " cannot impersonate") { // or "impersonate-on", since Kubernetes 1.36
			return &refusedError{identity.From(resp.Request.Context()), status.Message}
		}
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(start), resp.Body), resp.Body}
	return nil
}

// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"fmt"
	"net"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/berth-dev/berth/internal/httpstatus"
)

// misdirected means that the host name of a request isn't the one that the connection was made for (RFC 9110, 15.5.20).
type misdirected struct{ host, connection string }

// Error implements [error].
func (m *misdirected) Error() string {
	return fmt.Sprintf("the request is for the host %.100q, and the TLS connection for %.100q; use a connection for each host name", m.host, m.connection)
}

// spaceOfHost returns the space that the host name of a request names, SPACE.DOMAIN; "" if it names none. The TLS connection must be made
// for the same host, so that nothing on the way that looks at one of the two takes the request for that of another space. The error is
// [*misdirected].
func (g *Router) spaceOfHost(r *http.Request) (space string, err error) {
	if g.Domain == "" {
		return "", nil
	}
	host, connection := hostName(r.Host), ""
	if r.TLS != nil {
		connection = hostName(r.TLS.ServerName)
	}
	named, ofConnection := g.spaceIn(host), g.spaceIn(connection)
	if named != ofConnection || named != "" && host != connection {
		return "", &misdirected{host, connection}
	}
	return named, nil
}

// spaceIn returns the space that a host name has before the domain; "" if the host name isn't of that form.
func (g *Router) spaceIn(host string) string {
	space, ok := strings.CutSuffix(host, "."+g.Domain)
	if !ok || len(validation.IsDNS1123Label(space)) > 0 {
		return ""
	}
	return space
}

// hostName returns a host in lower case, without a port, and without the dot of the root.
func hostName(host string) string {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	return strings.ToLower(strings.TrimSuffix(host, "."))
}

func refuseHost(w http.ResponseWriter, err error) {
	closeAfter(w)
	httpstatus.Write(w, http.StatusMisdirectedRequest, metav1.StatusReasonBadRequest, err.Error(), 0)
}

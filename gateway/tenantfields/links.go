// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package tenantfields

import (
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apiserver/pkg/endpoints/request"

	"github.com/berth-dev/berth/gateway/resolve"
)

// maxLink is how long the full path of a request is at most. Names have up to 253 characters, so that those of objects are shorter.
const maxLink = 2 << 10

// links has the full paths of the objects in a response.
type links struct {
	// self is the full path of the request, without parameters and the deprecated prefix "watch"; "" if it has none, or is too long to be
	// that of an object.
	self string
	// named means that the request names an object, of which self is the path.
	named bool
	// namespaces is the full path of all namespaces, for a request that names none, and resource is what it is for.
	namespaces, resource string
}

// rootOf returns the role of what a response to a request contains. It is nothing if the fields of full paths don't apply.
func rootOf(info *request.RequestInfo) role {
	if !info.IsResourceRequest || len(info.Parts) == 0 {
		return nothing
	}
	switch info.Subresource {
	case "proxy", "exec", "attach", "portforward", "log":
		return nothing // bytes of pods
	}
	switch info.Verb {
	case "watch":
		return watchEvent
	case "list", "deletecollection":
		return apiList
	case "get", "create", "update", "patch", "delete":
		return apiObject
	}
	return nothing
}

// infoOf returns what a request is for, by the rules of API servers.
func infoOf(r *http.Request) *request.RequestInfo {
	factory := &request.RequestInfoFactory{APIPrefixes: sets.NewString("api", "apis"), GrouplessAPIPrefixes: sets.NewString("api")}
	info, err := factory.NewRequestInfo(r)
	if err != nil {
		return &request.RequestInfo{} // the API server returns the error
	}
	return info
}

func linksOf(tenant string, info *request.RequestInfo) links {
	version := "/" + info.APIPrefix + "/"
	if info.APIGroup != "" {
		version += url.PathEscape(info.APIGroup) + "/"
	}
	version += url.PathEscape(info.APIVersion) + "/"
	parts := make([]string, 0, len(info.Parts))
	for _, part := range info.Parts {
		parts = append(parts, url.PathEscape(part))
	}
	l := links{named: len(parts) > 1, resource: parts[0]}
	within := ""
	if info.Namespace != "" && info.Resource != "namespaces" {
		within = "namespaces/" + url.PathEscape(info.Namespace) + "/"
	}
	if self, ok := resolve.Full(tenant, version+within+strings.Join(parts, "/")); ok && len(self) <= maxLink {
		l.self = self
	}
	if all, ok := resolve.Full(tenant, version+"namespaces"); ok && within == "" && l.self != "" {
		l.namespaces = all
	}
	return l
}

// of returns the full path of an API object or a list by its metadata; "" if it has none, such as a bookmark.
func (l *links) of(what role, name, namespace string) string {
	switch {
	case l.self == "" || l.named || what == apiList:
		return l.self
	case name == "":
		return ""
	case namespace != "" && l.namespaces != "":
		return l.namespaces + "/" + url.PathEscape(namespace) + "/" + l.resource + "/" + url.PathEscape(name)
	}
	return l.self + "/" + url.PathEscape(name)
}

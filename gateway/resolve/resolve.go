// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package resolve

import (
	"cmp"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// Prefix is the prefix of the paths of spaces: Prefix + name + "/...".
const Prefix = "/spaces/"

// System is the name of the tenant of the platform itself, and of its space, which is the host's own API (T3).
const System = "system"

// Target is what a URL is for.
type Target struct {
	// Space is the space to serve. It need not exist.
	Space string
	// Tenant is the tenant that a full path names; "" for all other paths. The caller must check that Space belongs to it.
	Tenant string
	// Path is the path inside the space, with its escapes.
	Path string
}

// Error says why a path leads nowhere. Its message names what is wrong, and the remedy.
type Error struct {
	// Code is the HTTP status code: 400 or 404.
	Code    int
	message string
}

// Error implements [error].
func (e *Error) Error() string { return e.message }

func invalid(format string, args ...any) *Error {
	return &Error{http.StatusBadRequest, fmt.Sprintf(format, args...)}
}

var errNoSpace = &Error{http.StatusNotFound, "this is Berth's gateway; a space's API is at " + Prefix + "NAME: use the kubeconfig that `berth kubeconfig NAME` prints"}

// Resolve returns what a path is for. There are three forms:
//
//   - /spaces/SPACE/... names a space.
//   - A full path, such as /api/v1/tenants/TENANT/..., names a tenant. Its space has its name.
//   - All others are short paths, for the client's own space. If the client has none, they are for the default tenant.
//
// path has its escapes ([net/url.URL.EscapedPath]). own is the tenant of the client's identity, or the one of the tenant's
// spaces that issued the client's credential; "" if there is none. A system user is a client whose own tenant is [System].
// defaultTenant is "" if there is none. The source of the algorithm is "Resource URL Endpoint Resolution" in the design of
// Arktos's resource model; docs/decisions/0043 has the differences.
//
// The outcome is stable: neither Prefix + Space + Path nor, unless the path had that form, Path itself resolves to anything
// else for a client of the space. The error is an [Error].
func Resolve(path, own, defaultTenant string) (Target, error) {
	if rest, ok := strings.CutPrefix(path, Prefix); ok {
		space, rest, _ := strings.Cut(rest, "/")
		if space == "" {
			return Target{}, errNoSpace
		}
		return Target{Space: space, Path: "/" + rest}, nil
	}
	tenant, inner, err := cutTenant(path)
	if err != nil {
		return Target{}, err
	}
	if tenant != "" {
		return Target{Space: tenant, Tenant: tenant, Path: inner}, nil
	}
	if own = cmp.Or(own, defaultTenant); own == "" {
		return Target{}, errNoSpace
	}
	return Target{Space: own, Path: path}, nil
}

// Full returns the full path of a path in the space of a tenant. It returns false for paths that have none: those of no
// resource, such as /version, and of all versions or groups, such as /apis.
func Full(tenant, path string) (full string, ok bool) {
	rest, rooted := strings.CutPrefix(path, "/")
	parts := strings.SplitN(rest, "/", segments)
	at := resourceSegment(parts)
	if !rooted || at < 0 || len(parts) <= at {
		return "", false
	}
	full = "/" + strings.Join(parts[:at], "/") + "/tenants/" + tenant + "/" + strings.Join(parts[at:], "/")
	target, err := Resolve(full, "", "")
	return full, err == nil && target == Target{Space: tenant, Tenant: tenant, Path: path}
}

// cutTenant splits a full path. tenant is "" if it is none.
//
// A path is a full path if an API server would read it as one: with its escapes resolved, and without slashes at its ends.
// But only one spelling is accepted, so that nothing between a client and the API server can take the path for another one.
func cutTenant(path string) (tenant, inner string, err error) {
	decoded, err := url.PathUnescape(path)
	if err != nil {
		return "", "", invalid("the path %.100q: %v; escape each %% as %%25", path, err)
	}
	parts, at := split(decoded)
	if at < 0 {
		return "", "", nil
	}
	tenant = parts[at+1]
	if problems := validation.IsDNS1123Label(tenant); len(problems) > 0 {
		return "", "", invalid("the path names the tenant %.100q: %s; put the name of a tenant behind /tenants/", tenant, problems[0])
	}
	root := "/" + strings.Join(parts[:at], "/") + "/"
	if verb := parts[at-1]; at > resourceSegment(parts) {
		return "", "", invalid("the path has the tenant %s behind %s; write .../tenants/%s/%s/...", tenant, verb, tenant, verb)
	}
	rest, ok := strings.CutPrefix(path, root+"tenants/"+tenant+"/")
	switch {
	case !ok:
		return "", "", invalid("the path names the tenant %s in another spelling; write %.200qtenants/%s/, without escapes and additional slashes", tenant, root, tenant)
	case strings.HasPrefix(rest, "/"):
		return "", "", invalid("the path has no resource behind the tenant %s; remove the additional slash", tenant)
	}
	inner = root + rest
	if names(inner) {
		return "", "", invalid("the path names the tenant %s and another one; remove one of them", tenant)
	}
	return tenant, inner, nil
}

// names reports whether a path with a valid escaping has the form of a full path.
func names(path string) bool {
	decoded, err := url.PathUnescape(path)
	_, at := split(decoded)
	return err != nil || at >= 0
}

// segments is how many segments of a path matter: "apis", group, version, "watch", "tenants", tenant, resource, and the rest.
const segments = 8

// split splits a decoded path as API servers do. at is the index of the segment "tenants" of a full path, -1 for others.
//
// Tenants are objects, too. As with namespaces, .../tenants/NAME and its subresources are the object, and what comes behind
// is a resource of the tenant.
func split(decoded string) (parts []string, at int) {
	if !strings.Contains(decoded, "/tenants/") {
		return nil, -1 // most paths
	}
	parts = strings.SplitN(strings.Trim(decoded, "/"), "/", segments)
	if at = resourceSegment(parts); at < 0 {
		return nil, -1
	}
	if at < len(parts) && (parts[at] == "watch" || parts[at] == "proxy") {
		at++
	}
	switch {
	case len(parts) < at+3 || parts[at] != "tenants":
		return nil, -1
	case len(parts) == at+3 && (parts[at+2] == "status" || parts[at+2] == "scale"):
		return nil, -1
	}
	return parts, at
}

// resourceSegment returns the index of the segment after the version; -1 if there is no version in such paths.
func resourceSegment(parts []string) int {
	switch parts[0] {
	case "api":
		return 2
	case "apis":
		return 3
	}
	return -1
}

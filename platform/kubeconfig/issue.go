// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package kubeconfig

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/berth-dev/berth/access"
	"github.com/berth-dev/berth/api/v1alpha1"
	"github.com/berth-dev/berth/bounds"
	"github.com/berth-dev/berth/internal/fielderror"
	"github.com/berth-dev/berth/platform/datadir"
	"github.com/berth-dev/berth/vcluster/pki"
)

// These are the defaults of a [Request], and the limits of its TTL.
const (
	AdminUser  = "admin"
	AdminGroup = pki.AdminGroup

	DefaultTTL = pki.ClientLifetime
	MinTTL     = pki.MinClientLifetime
	MaxTTL     = pki.MaxClientLifetime
)

// Request describes the user of a kubeconfig to issue.
type Request struct {
	// User defaults to [AdminUser]. If User and Groups are both empty, the user is in [AdminGroup].
	User   string
	Groups []string
	// Owner, if set, is the owner of the space's tenant that the kubeconfig is for. It sets User and Groups, see [OwnerUser]. The
	// kubeconfig is good only as long as the space has that owner.
	Owner *v1alpha1.Subject
	// TTL is how long the kubeconfig is valid, from [MinTTL] to [MaxTTL].
	TTL time.Duration
}

// maxNameBytes is the maximum length of the names of users and groups, as of most names in Kubernetes.
const maxNameBytes = 253

// reservedPrefix is the prefix of the users and groups of Kubernetes itself.
const reservedPrefix = "system:"

// complete sets defaults, and rejects invalid values. An error is a [*fielderror.Error].
func (r *Request) complete() (err error) {
	if r.Owner != nil {
		if r.User, r.Groups, err = OwnerUser(*r.Owner); err != nil {
			return err
		}
	}
	if r.User == "" {
		r.User = AdminUser
		if len(r.Groups) == 0 {
			r.Groups = []string{AdminGroup}
		}
	}
	if r.TTL < MinTTL || r.TTL > MaxTTL {
		return fielderror.New("ttl", r.TTL, "must be from %s to %s, because a lost kubeconfig is valid until it expires or until 'berth rotate --ca' revokes all of the space; issue another one when it expires",
			MinTTL, MaxTTL)
	}
	if err := checkIdentity("user", r.User); err != nil {
		return err
	}
	for _, group := range r.Groups {
		if err := checkIdentity("group", group); err != nil {
			return err
		}
	}
	if err := bounds.IdentityGroups.Check(int64(len(r.Groups))); err != nil {
		return fielderror.New("group", "", "%w", err)
	}
	return nil
}

func checkIdentity(field, name string) error {
	switch {
	case name == "":
		return fielderror.New(field, "", "must not be empty")
	case len(name) > maxNameBytes || !utf8.ValidString(name) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return fielderror.New(field, fmt.Sprintf("%.40q", name), "must be a name of at most %d bytes without control characters", maxNameBytes)
	case strings.HasPrefix(name, reservedPrefix):
		return fielderror.New(field, name, "must not begin with %q, which Kubernetes reserves; use the group %s, or bind roles to a group of your own",
			reservedPrefix, AdminGroup)
	case access.IsHostUser(&user.DefaultInfo{Name: name}):
		return fielderror.New(field, name, "must not be that of a ServiceAccount of the host, which uses its tokens; see 'kubectl create token'")
	case access.IsReserved(&user.DefaultInfo{Name: name}):
		return fielderror.New(field, name, "must not be that of a user of another tenant, which uses a credential of the platform; see 'Share access' in the guides")
	}
	return nil
}

// Issue returns a new kubeconfig of a space, or of the host. A platform may run on the data directory or not, and the
// space may sleep: Issue wakes nothing and writes nothing.
func Issue(dataDir, name string, r Request) ([]byte, error) {
	if err := r.complete(); err != nil {
		return nil, err
	}
	clients, err := OpenClientCA(dataDir, name)
	if err != nil {
		return nil, fmt.Errorf("issue a kubeconfig of %s: %w", name, err)
	}
	port, err := pki.OpenCA(datadir.PortKeys(dataDir), datadir.PortCA)
	if err != nil {
		return nil, err
	}
	kept, err := clientcmd.LoadFromFile(datadir.Kubeconfig(dataDir, name))
	if err != nil {
		return nil, fmt.Errorf("read kubeconfig of %s: %w", name, err)
	}
	context := kept.Contexts[kept.CurrentContext]
	if context == nil || kept.Clusters[context.Cluster] == nil {
		return nil, fmt.Errorf("read kubeconfig of %s: it has no current context; remove %s and start berth again", name, datadir.Kubeconfig(dataDir, name))
	}
	client, err := clientFor(clients, &r)
	if err != nil {
		return nil, err
	}
	serverCA, err := ServerCA(dataDir, port)
	if err != nil {
		return nil, fmt.Errorf("issue a kubeconfig of %s: %w", name, err)
	}
	return pki.Kubeconfig(context.Cluster, kept.Clusters[context.Cluster].Server, serverCA, r.User, client)
}

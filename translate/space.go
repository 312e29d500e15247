// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/netip"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// HostNamespacePrefix is the prefix of the names of spaces' host namespaces.
const HostNamespacePrefix = "berth-"

// MaxSpaceName is the maximum length of a space's name in bytes. The name of its host namespace must be a DNS label.
const MaxSpaceName = 63 - len(HostNamespacePrefix)

// Space is what translation needs to know about a space.
type Space struct {
	// Name is the name of the space, a DNS label of at most [MaxSpaceName] bytes.
	Name string
	// Store is the ID of the space's data. It is not secret. Another space with the same name has another ID.
	Store string
	// Platform is the platform that runs the space; see [LabelPlatform]. The translation of objects does not depend on
	// it.
	Platform string
	// NodeKey is the secret key of the space's node aliases. Without a key, a tenant could verify a guessed node name
	// by hashing it.
	NodeKey []byte
	// Nameservers are the IP addresses of the space's cluster DNS. While there are none, pods use the host's.
	Nameservers []string
	// Pods is where the space's pods reach Berth.
	Pods PodsEndpoint
	// Settings are the admin's settings of the space.
	Settings Settings
	// Closed are address ranges that are closed to the space's pods, in addition to those that are closed to all.
	Closed []netip.Prefix
	// ClusterDomain is the cluster domain of the space; "cluster.local" if it is empty.
	ClusterDomain string
}

// HostNamespace returns the name of the host namespace with the space's objects.
func (s Space) HostNamespace() string { return HostNamespacePrefix + s.Name }

// NodeAlias returns the name of a host node in the space (N2). It is stable, so that tenants can see which pods share a
// node, and it reveals nothing outside the space. The empty node of an unscheduled pod stays empty.
func (s Space) NodeAlias(hostNode string) string {
	if hostNode == "" {
		return ""
	}
	return "node-" + s.digest(hostNode)
}

// alias returns the name in the space of something of a kind that belongs to a node, by what names it on the host.
func (s Space) alias(kind string, names ...string) string {
	return kind + "-" + s.digest("\x00"+kind+"\x00"+strings.Join(names, "\x00"))
}

func (s Space) digest(of string) string {
	mac := hmac.New(sha256.New, s.NodeKey)
	mac.Write([]byte(s.Name + "\x00" + of))
	return hex.EncodeToString(mac.Sum(nil)[:6])
}

// ObjectMeta returns the metadata of v's host object: its name, namespace, and identity. The tenant's labels,
// annotations, owners, and finalizers stay in the space. On the host, controllers could act on them: some use any
// config map or secret with a certain label.
func (s Space) ObjectMeta(v metav1.Object, nameLimit int) metav1.ObjectMeta {
	labels := map[string]string{LabelManagedBy: ManagedBy, LabelSpace: s.Name}
	if v.GetNamespace() != "" {
		labels[LabelNamespace] = v.GetNamespace()
	}
	return metav1.ObjectMeta{
		Name:      s.HostName(v.GetNamespace(), v.GetName(), nameLimit),
		Namespace: s.HostNamespace(),
		Labels:    labels,
		Annotations: map[string]string{
			AnnotationNamespace: v.GetNamespace(),
			AnnotationName:      v.GetName(),
			AnnotationUID:       string(v.GetUID()),
		},
	}
}

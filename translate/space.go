// Copyright The Berth Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"net/netip"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// HostNamespacePrefix begins the name of every host namespace that holds a
// space's objects.
const HostNamespacePrefix = "berth-"

// MaxSpaceName is the longest name of a space in bytes: its host namespace
// must still be a DNS label.
const MaxSpaceName = 63 - len(HostNamespacePrefix)

// Space is what translation must know of one space.
type Space struct {
	// Name of the space, a DNS label of at most [MaxSpaceName] bytes.
	Name string
	// Store identifies the space's data: another space of the same name has
	// another. It is no secret.
	Store string
	// Platform names the platform that runs the space, as [LabelPlatform] on the
	// host has it. Translation of objects does not depend on it.
	Platform string
	// NodeKey is the secret under which the space's node aliases are made.
	// Without it a tenant could confirm a guessed node name by hashing it.
	NodeKey []byte
	// Nameservers are the IP addresses of the space's cluster DNS. While it is
	// empty, pods keep the host's.
	Nameservers []string
	// Pods is where the space's pods reach Berth.
	Pods PodsEndpoint
	// Settings are the admin's for the space.
	Settings Settings
	// Closed are address ranges that are closed to the space's pods beside those
	// that are closed to all.
	Closed []netip.Prefix
	// ClusterDomain of the space's DNS names, "cluster.local" if empty.
	ClusterDomain string
}

// HostNamespace is the one namespace on the host that holds the space's objects.
func (s Space) HostNamespace() string { return HostNamespacePrefix + s.Name }

// NodeAlias is the name under which the space sees a host node (N2): stable,
// so that "are these two pods together" still answers, and meaningless outside
// of the space. An unscheduled pod's empty node stays empty.
func (s Space) NodeAlias(hostNode string) string {
	if hostNode == "" {
		return ""
	}
	mac := hmac.New(sha256.New, s.NodeKey)
	mac.Write([]byte(s.Name + "\x00" + hostNode))
	return "node-" + hex.EncodeToString(mac.Sum(nil)[:6])
}

// ObjectMeta is the metadata of v's host object: its name, namespace, and
// identity. The tenant's labels, annotations, owners and finalizers stay in the
// space: on the host they could steer its controllers, some of which pick up
// any config map or secret that bears a certain label.
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
